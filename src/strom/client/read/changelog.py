"""Reads the changes of a table: every record of the log with its kind, offset and commit time.

For a primary-key table these are the changes of its rows, as ``table.changelog.image`` keeps them; replayed from the
beginning they give the table. Planned and fetched like any log. ``Images`` gives the rows of an instant in the same
form, as if each had just been inserted: the start for a reader that then follows the changes.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from strom.client.plan.log_plan import ScanPlan
from strom.client.read.change_kinds import kinds_of
from strom.client.read.key_scan import KeyScan
from strom.client.read.log_scan import LogScan
from strom.client.read.row_reader import Fetched
from strom.client.read.scan_chunk import AnyChunk, Chunk
from strom.record.layout import CHANGE_INSERT

CHANGE_TYPE = "_change_type"
LOG_OFFSET = "_log_offset"
COMMIT_TIMESTAMP = "_commit_timestamp"
BUCKET = "_bucket"

FACTS = pa.schema(
    [
        pa.field(CHANGE_TYPE, pa.string(), nullable=False),
        pa.field(LOG_OFFSET, pa.int64(), nullable=False),
        pa.field(COMMIT_TIMESTAMP, pa.timestamp("ms", "UTC"), nullable=False),
        pa.field(BUCKET, pa.int32(), nullable=False),
    ]
)
"""The columns in front of the table's own."""


class Changelog(LogScan):
    """The changes between two places in every bucket."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The facts of each change, then the table's columns."""
        return pa.schema([*FACTS, *self._source.reader.arrow])

    def _plan_is_exact(self, plan: ScanPlan) -> bool:
        """A batch may hold fewer records than offsets, so only reading shows how many there are."""
        return False

    def read(self, chunk: AnyChunk) -> list[pa.RecordBatch]:
        """The changes of a chunk; any thread."""
        assert isinstance(chunk, Chunk)
        bucket = self._bucket_of(chunk).bucket
        return [self._with_facts(one, bucket) for one in self._read_each(chunk)]

    def _with_facts(self, fetched: Fetched, bucket: int) -> pa.RecordBatch:
        rows = fetched.data.num_rows
        times = pa.array(np.full(rows, fetched.timestamp_ms, np.int64)).cast(FACTS.field(2).type)
        return _joined(kinds_of(fetched.changes, rows), times, fetched, bucket, self.schema)

    async def count(self) -> int:
        """The number of changes; this reads them."""
        return sum([batch.num_rows async for batch in self.to_batches()])


class Images(KeyScan):
    """The rows of an instant as inserts, each at the offset of its last change. Their commit times are NULL."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The facts of each row, then the table's columns."""
        facts = FACTS.set(2, FACTS.field(2).with_nullable(True))
        return pa.schema([*facts, *self._source.reader.arrow])

    @property
    def _parted(self) -> bool:
        """Offsets are part of the result, so they are requested."""
        return True

    def read(self, chunk: AnyChunk) -> list[pa.RecordBatch]:
        """The rows of a chunk; any thread."""
        assert isinstance(chunk, Chunk)
        assert self._plan is not None
        bucket = self._plan.instants[chunk.range_number].bucket.bucket
        found = (self._source.reader.read(batch, start=chunk.start, end=chunk.end) for batch in chunk.batches)
        return [self._with_facts(one, bucket) for one in found if one is not None]

    def _with_facts(self, fetched: Fetched, bucket: int) -> pa.RecordBatch:
        rows = fetched.data.num_rows
        kinds = kinds_of(np.full(rows, CHANGE_INSERT, np.uint8), rows)
        return _joined(kinds, pa.nulls(rows, FACTS.field(2).type), fetched, bucket, self.schema)


def _joined(
    kinds: pa.Array, times: pa.Array, fetched: Fetched, bucket: int, schema: pa.Schema
) -> pa.RecordBatch:
    buckets = pa.array(np.full(fetched.data.num_rows, bucket, np.int32))
    facts = [kinds, pa.array(fetched.offsets), times, buckets]
    return pa.RecordBatch.from_arrays([*facts, *fetched.data.columns], schema=schema)
