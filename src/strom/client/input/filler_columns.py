"""Columns that nobody reads: the cheapest arrays that a type and its NOT NULLs allow."""

from __future__ import annotations

import pyarrow as pa


def filler(field: pa.Field, rows: int) -> pa.Array:
    """``rows`` NULLs; where NULL is not allowed, zeros, empty text and empty lists."""
    return pa.nulls(rows, field.type) if field.nullable else _zeros(field.type, rows)


def _zeros(kind: pa.DataType, rows: int) -> pa.Array:
    if pa.types.is_struct(kind):
        fields = [kind.field(position) for position in range(kind.num_fields)]
        return pa.StructArray.from_arrays([filler(field, rows) for field in fields], fields=fields)
    if pa.types.is_map(kind):
        entries = pa.nulls(0, pa.struct([kind.key_field, kind.item_field]))
        return pa.Array.from_buffers(kind, rows, [None, _empty(4 * (rows + 1))], children=[entries])
    if pa.types.is_list(kind):
        inside = pa.nulls(0, kind.value_type)
        return pa.Array.from_buffers(kind, rows, [None, _empty(4 * (rows + 1))], children=[inside])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.Array.from_buffers(kind, rows, [None, _empty(4 * (rows + 1)), _empty(0)])
    return pa.Array.from_buffers(kind, rows, [None, _empty((rows * kind.bit_width + 7) // 8)])


def _empty(size: int) -> pa.Buffer:
    return pa.py_buffer(bytes(size))
