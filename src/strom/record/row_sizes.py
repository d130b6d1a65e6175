"""How large each row of a batch is, computed by vectors, to refuse rows that could not be read back."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Sizes = npt.NDArray[np.int64]


def row_sizes(rows: pa.RecordBatch) -> Sizes:
    """The bytes of every row's values, as Arrow holds them; bitmaps are not counted."""
    total = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        total += _sizes(column)
    return total


def _sizes(column: pa.Array) -> Sizes:
    kind, count = column.type, len(column)
    if pa.types.is_struct(kind):
        return sum(
            (_sizes(column.field(number)) for number in range(kind.num_fields)), np.zeros(count, np.int64)
        )
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        offsets = _offsets(column)
        values = column.values if pa.types.is_list(kind) else _entries(column)
        ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(_sizes(values))))
        return ends[offsets[1:]] - ends[offsets[:-1]] + offsets.itemsize
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        offsets = _offsets(column)
        return np.diff(offsets).astype(np.int64) + offsets.itemsize
    width = 0 if pa.types.is_null(kind) else max(kind.bit_width // 8, 1)
    return np.full(count, width, np.int64)


def _offsets(column: pa.Array) -> npt.NDArray[np.int32]:
    if not len(column):
        return np.zeros(1, np.int32)
    return np.frombuffer(column.buffers()[1], "<i4", len(column) + 1, 4 * column.offset)


def _entries(column: pa.MapArray) -> pa.StructArray:
    """Keys and items of a map, of all rows."""
    return pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
