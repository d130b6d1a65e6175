"""Rows with their offset and commit time in two extra columns, as the lake stores them.

``StampedLog`` reads ranges of a log; ``StampedImages`` the rows of an instant, whose commit times are NULL (unknown).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from strom.client.read.key_scan import KeyScan
from strom.client.read.log_scan import LogScan
from strom.client.read.row_reader import Fetched
from strom.client.read.scan_chunk import AnyChunk, Chunk

OFFSET = "__offset"
TIMESTAMP = "__timestamp"

STAMPS = pa.schema(
    [
        pa.field(OFFSET, pa.int64(), nullable=False),
        pa.field(TIMESTAMP, pa.timestamp("ms", "UTC"), nullable=True),
    ]
)
"""Added after the table's own columns."""


class StampedLog(LogScan):
    """Ranges of a log, planned elsewhere."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns, then the stamps."""
        return pa.schema([*self._source.reader.arrow, *STAMPS])

    def read(self, chunk: AnyChunk) -> list[pa.RecordBatch]:
        """The rows of a chunk; any thread."""
        assert isinstance(chunk, Chunk)
        return [self._stamped(one) for one in self._read_each(chunk)]

    def _stamped(self, fetched: Fetched) -> pa.RecordBatch:
        times = np.full(fetched.data.num_rows, fetched.timestamp_ms, np.int64)
        stamps = [pa.array(fetched.offsets), pa.array(times).view(STAMPS.field(1).type)]
        return pa.RecordBatch.from_arrays([*fetched.data.columns, *stamps], schema=self.schema)


class StampedImages(KeyScan):
    """Rows of an instant, planned elsewhere: each at the offset of its last change."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The table's columns, then the stamps."""
        return pa.schema([*self._source.reader.arrow, *STAMPS])

    @property
    def _parted(self) -> bool:
        """Offsets are part of the result, so they are requested."""
        return True

    def read(self, chunk: AnyChunk) -> list[pa.RecordBatch]:
        """The rows of a chunk; any thread."""
        assert isinstance(chunk, Chunk)
        found = (self._source.reader.read(batch, start=chunk.start, end=chunk.end) for batch in chunk.batches)
        return [self._stamped(one) for one in found if one is not None]

    def _stamped(self, fetched: Fetched) -> pa.RecordBatch:
        stamps = [pa.array(fetched.offsets), pa.nulls(fetched.data.num_rows, STAMPS.field(1).type)]
        return pa.RecordBatch.from_arrays([*fetched.data.columns, *stamps], schema=self.schema)
