"""Encodes arrays, maps and rows inside compacted rows (``nested_form``), value by value."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from strom.kv.arrays import Int64s, Octets
from strom.kv.peer_rows.nested_form import (
    COUNT,
    INLINE,
    INLINE_MAX,
    LONG,
    NANOS_PER_MILLI,
    REFERENCE,
    SLOT_CODES,
    slot_width,
)
from strom.kv.peer_rows.row_form import DECIMAL_COMPACT_MAX, PER_MILLI, is_nested

_WIDE_DECIMAL_AREA: Final = 16

EncodeRows = Callable[[pa.RecordBatch], tuple[Octets, Int64s]]
"""Rows hold nested values, which hold rows: the encoder of rows passes itself on."""


def encode_nested(array: pa.Array, encode_rows: EncodeRows) -> pa.Array:
    """A binary array: each value as bytes, NULL where the value is NULL. ``encode_rows`` writes rows inside them."""
    return pa.array(_values(array, encode_rows), pa.binary())


def _values(array: pa.Array, encode_rows: EncodeRows) -> list[bytes | None]:
    kind = array.type
    valid = array.is_valid().to_pylist()
    if pa.types.is_struct(kind):
        rows = _rows(array, encode_rows)
        return [row if there else None for row, there in zip(rows, valid, strict=True)]
    offsets = array.offsets.to_pylist()
    if pa.types.is_map(kind):
        keys = _Elements(array.keys, encode_rows)
        items = _Elements(array.items, encode_rows)
        return [
            _map(keys.encode(low, high), items.encode(low, high)) if there else None
            for low, high, there in zip(offsets[:-1], offsets[1:], valid, strict=True)
        ]
    elements = _Elements(array.values, encode_rows)
    return [
        elements.encode(low, high) if there else None
        for low, high, there in zip(offsets[:-1], offsets[1:], valid, strict=True)
    ]


def _rows(array: pa.Array, encode_rows: EncodeRows) -> list[bytes]:
    fields = [array.type.field(i) for i in range(array.type.num_fields)]
    batch = pa.RecordBatch.from_arrays(array.flatten(), schema=pa.schema(fields))
    data, starts = encode_rows(batch)
    whole = data.tobytes()
    places = starts.tolist()
    return [whole[low:high] for low, high in pairwise(places)]


def _map(keys: bytes, items: bytes) -> bytes:
    return COUNT.pack(len(keys)) + keys + items


class _Elements:
    """The elements of all arrays of a column; any run of them can be encoded as an array."""

    def __init__(self, values: pa.Array, encode_rows: EncodeRows) -> None:
        kind = values.type
        self._kind = kind
        self._width = slot_width(kind)
        self._values = _values(values, encode_rows) if is_nested(kind) else _plain(values)
        self._form = struct.Struct("<" + SLOT_CODES[kind]) if kind in SLOT_CODES else None

    def encode(self, low: int, high: int) -> bytes:
        count = high - low
        head = 4 + (count + 31) // 32 * 4
        out = bytearray(-(-(head + count * self._width) // 8) * 8)
        COUNT.pack_into(out, 0, count)
        for i, value in enumerate(self._values[low:high]):
            if value is None:
                out[4 + (i >> 3)] |= 1 << (i & 7)
            elif self._form is not None:
                self._form.pack_into(out, head + i * self._width, value)
            else:
                self._put(out, head + i * self._width, value)
        return bytes(out)

    def _put(self, out: bytearray, at: int, value: Any) -> None:
        kind = self._kind
        if pa.types.is_time(kind):
            COUNT.pack_into(
                out, at, value * 1000 if kind.unit == "s" else value // PER_MILLI.get(kind.unit, 1)
            )
        elif pa.types.is_timestamp(kind):
            _put_timestamp(out, at, value, kind.unit)
        elif pa.types.is_decimal(kind):
            _put_decimal(out, at, value, kind)
        elif not is_nested(kind) and len(value) <= INLINE_MAX:
            out[at : at + len(value)] = value
            out[at + 7] = INLINE | len(value)
        else:
            REFERENCE.pack_into(out, at, len(value), _append(out, value))


def _plain(values: pa.Array) -> list[Any]:
    """Scalars as Python values: text as bytes; dates, times and timestamps as integers."""
    kind = values.type
    if pa.types.is_string(kind):
        return list(values.cast(pa.binary()).to_pylist())
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        return list(values.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist())
    return list(values.to_pylist())


def _append(out: bytearray, value: bytes) -> int:
    position = len(out)
    out += value
    out += b"\0" * (-len(value) % 8)
    return position


def _put_timestamp(out: bytearray, at: int, ticks: int, unit: str) -> None:
    if unit not in PER_MILLI:
        LONG.pack_into(out, at, ticks * 1000 if unit == "s" else ticks)
        return
    millis, rest = divmod(ticks, PER_MILLI[unit])
    nanos = rest * (NANOS_PER_MILLI // PER_MILLI[unit])
    REFERENCE.pack_into(out, at, nanos, _append(out, LONG.pack(millis)))


def _put_decimal(out: bytearray, at: int, value: Decimal, kind: pa.DataType) -> None:
    sign, digits, _ = value.as_tuple()
    unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
    if kind.precision <= DECIMAL_COMPACT_MAX:
        LONG.pack_into(out, at, unscaled)
        return
    size = (unscaled.bit_length() if unscaled >= 0 else (unscaled + 1).bit_length()) // 8 + 1
    area = unscaled.to_bytes(size, "big", signed=True)
    REFERENCE.pack_into(out, at, size, _append(out, area.ljust(_WIDE_DECIMAL_AREA, b"\0")))
