"""Adds missing columns to old batches, for clients that cannot.

The peer's client reads every batch of a projected scan as if it had the columns of the schema the scan began with. A
batch written before one of them was added must therefore leave with that column, full of NULLs. Nowhere else is a batch
decoded to be sent; it ends when the old batches have expired.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from strom.record.batch import BatchHeader, stamp
from strom.record.decode import decode, weight
from strom.record.encode import encode
from strom.runtime.files import Bytes


class Evolved:
    """Gives every batch the columns ``wanted``; the ones it has are in ``schema_read(schema_id)``, by name."""

    def __init__(
        self, wanted: pa.Schema, schema_read: Callable[[int], pa.Schema], *, decompressed_bytes_max: int
    ) -> None:
        self._wanted = wanted
        self._schema_read = schema_read
        self._decompressed_bytes_max = decompressed_bytes_max

    def weight(self, header: BatchHeader, view: memoryview) -> int:
        """Rough size of what ``rewritten`` holds: the batch decoded and encoded, with room for its NULLs."""
        have = self._schema_read(header.schema_id).names
        if not header.record_count or have == self._wanted.names:
            return 0
        row_bytes = sum(_null_bytes(field.type) for field in self._wanted if field.name not in have)
        known = weight(view, header, decompressed_bytes_max=self._decompressed_bytes_max)
        return known + 2 * header.record_count * row_bytes

    def rewritten(self, header: BatchHeader, view: memoryview) -> list[Bytes] | None:
        """The same batch, with NULLs for the columns it lacks."""
        return [self._complete(header, view)]

    def _complete(self, header: BatchHeader, view: memoryview) -> Bytes:
        have = self._schema_read(header.schema_id)
        if not header.record_count or have.names == self._wanted.names:
            return view
        batch = decode(
            view,
            have,
            header=header,
            check_crc=False,
            decompressed_bytes_max=self._decompressed_bytes_max,
        )
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


def _null_bytes(kind: pa.DataType) -> int:
    """Rough size of a NULL of this type: its value, a bit, an offset."""
    if pa.types.is_nested(kind):
        return 8 + sum(_null_bytes(kind.field(number).type) for number in range(kind.num_fields))
    try:
        return int(kind.bit_width) // 8 + 2
    except ValueError:
        return 8
