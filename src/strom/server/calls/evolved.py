"""Batches that are older than a column, for clients that cannot know it.

The peer's client reads every batch of a projected scan as if it had the columns of the schema the scan began with. A
batch written before one of them was added must therefore leave with that column, full of NULLs. This is the one place
where a batch is decoded to be sent; it ends when the old batches have expired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from strom.record.batch import BatchHeader, split, stamp
from strom.record.decode import decode
from strom.record.encode import encode
from strom.runtime.files import Bytes


class Evolved:
    """Gives every batch the columns ``wanted``; those it has are in ``schema_read(schema_id)``, by name."""

    def __init__(self, wanted: pa.Schema, schema_read: Callable[[int], pa.Schema]) -> None:
        self._wanted = wanted
        self._schema_read = schema_read

    def complete(self, buffers: Sequence[Bytes]) -> list[Bytes]:
        """The same batches, with NULLs for the columns they are too old to have."""
        return [self._complete(header, view) for header, view in split(b"".join(buffers))]

    def _complete(self, header: BatchHeader, view: memoryview) -> Bytes:
        have = self._schema_read(header.schema_id)
        if not header.record_count or have.names == self._wanted.names:
            return view
        batch = decode(view, have, header=header, check_crc=False)
        arrays = [
            batch.column(field.name)
            if field.name in have.names
            else pa.nulls(header.record_count, field.type)
            for field in self._wanted
        ]
        columns = pa.RecordBatch.from_arrays(arrays, schema=self._wanted)
        encoded = encode(
            columns,
            schema_id=header.schema_id,
            writer_id=header.writer_id,
            batch_sequence=header.batch_sequence,
        )
        stamp(encoded, base_offset=header.base_offset, timestamp_ms=header.timestamp_ms)
        return encoded
