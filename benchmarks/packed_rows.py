"""Rows of the workload as packed bytes of one length, for a log that knows only messages, and back to columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.workload import SMALL_SCHEMA

ROW = np.dtype(
    [
        ("id", "<i8"),
        ("user_id", "<i8"),
        ("amount", "<f8"),
        ("price", "<f8"),
        ("quantity", "<i4"),
        ("day", "<i4"),
        ("at", "<i8"),
        ("page", "S33"),
        ("country", "S2"),
        ("flag", "?"),
    ]
)


def packed(batch: pa.RecordBatch) -> list[bytes]:
    """Every row as bytes of the same length."""
    rows = np.empty(batch.num_rows, dtype=ROW)
    for name in ROW.names or ():
        rows[name] = _numbers(batch.column(name))
    together, width = rows.tobytes(), ROW.itemsize
    return [together[start : start + width] for start in range(0, len(together), width)]


def _numbers(column: pa.Array) -> npt.NDArray[np.generic]:
    kind = column.type
    if pa.types.is_string(kind):
        return column.cast(pa.binary()).to_numpy(zero_copy_only=False).astype("S")
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).to_numpy()
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64()).to_numpy()
    return column.to_numpy(zero_copy_only=False)


def unpacked(messages: list[bytes], columns: Sequence[str] | None = None) -> pa.RecordBatch:
    """Rows back to columns, those that are wanted."""
    rows = np.frombuffer(b"".join(messages), dtype=ROW)
    schema = pa.schema([SMALL_SCHEMA.field(name) for name in columns or SMALL_SCHEMA.names])
    arrays = [pa.array(rows[field.name]).cast(_plain(field.type)).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _plain(kind: pa.DataType) -> pa.DataType:
    """What numpy's numbers are to Arrow before they are days and moments."""
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_timestamp(kind) else kind
