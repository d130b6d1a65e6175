"""Arrays, maps and rows inside compacted rows, as Arrow. Rows go column by column, arrays and maps value by value.

The format is in ``nested_form``. Against hostile bytes: the elements of an array cannot be longer together than the
array, so reading never inflates data.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from strom.errors import MalformedBatch
from strom.kv.arrays import Bools, Int64s, Octets
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
from strom.kv.peer_rows.row_form import DAY_MILLIS, DECIMAL_COMPACT_MAX, PER_MILLI, is_nested

Raw = memoryview
Reader = Callable[[Raw, int], Any]
DecodeRows = Callable[[pa.Schema, Octets, Int64s, Int64s], pa.RecordBatch]
"""Rows hold nested values, which hold rows: the decoder of rows passes itself on."""


def decode_nested(
    kind: pa.DataType, data: Octets, starts: Int64s, ends: Int64s, decode_rows: DecodeRows
) -> pa.Array:
    """One value per span of ``data``; the spans lie within it. ``decode_rows`` reads rows inside nested values."""
    whole = data.data
    parts = [whole[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    try:
        return _decode(kind, parts, decode_rows)
    except (
        struct.error,
        IndexError,
        UnicodeDecodeError,
        OverflowError,
        ValueError,
        pa.ArrowInvalid,
    ) as problem:
        raise MalformedBatch(f"a nested value is no {kind}: {problem}", arrow_type=str(kind)) from None


def _decode(kind: pa.DataType, parts: list[Raw], decode_rows: DecodeRows) -> pa.Array:
    if pa.types.is_struct(kind):
        return _rows(kind, parts, decode_rows)
    if pa.types.is_map(kind):
        return _maps(kind, parts, decode_rows)
    return _arrays(kind, parts, decode_rows)


def spread(found: pa.Array, valid: Bools) -> pa.Array:
    """The found values where ``valid``, NULL elsewhere. In a NULL row, NOT NULL fields still get a value."""
    kind = found.type
    if not pa.types.is_struct(kind):
        return found.take(pa.array(np.cumsum(valid) - 1, mask=~valid))
    fields = [kind.field(i) for i in range(kind.num_fields)]
    filled = pa.concat_arrays([pa.array([_blank(kind)], kind), found])
    filled = filled.take(pa.array(np.where(valid, np.cumsum(valid), 0)))
    return pa.StructArray.from_arrays(filled.flatten(), fields=fields, mask=pa.array(~valid))


def _blank(kind: pa.DataType) -> Any:
    """A filler value that is not NULL."""
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return {field.name: None if field.nullable else _blank(field.type) for field in fields}
    if is_nested(kind):
        return []
    if pa.types.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    if pa.types.is_boolean(kind):
        return False
    return "" if pa.types.is_string(kind) else b"" if pa.types.is_binary(kind) else 0


def _rows(kind: pa.DataType, parts: list[Raw], decode_rows: DecodeRows) -> pa.Array:
    sizes = np.array([len(part) for part in parts], np.int64)
    ends = np.cumsum(sizes)
    data = np.frombuffer(b"".join(parts), np.uint8)
    fields = [kind.field(i) for i in range(kind.num_fields)]
    batch = decode_rows(pa.schema(fields), data, ends - sizes, ends)
    return pa.StructArray.from_arrays(batch.columns, fields=fields)


def _maps(kind: pa.DataType, parts: list[Raw], decode_rows: DecodeRows) -> pa.Array:
    keys, values = [], []
    for part in parts:
        (size,) = COUNT.unpack_from(part)
        if not 0 <= size <= len(part) - 4:
            raise IndexError("the keys of a map reach past its end")
        keys.append(part[4 : 4 + size])
        values.append(part[4 + size :])
    key_elements, key_counts = _elements(kind.key_type, False, keys, decode_rows)
    value_elements, value_counts = _elements(kind.item_type, kind.item_field.nullable, values, decode_rows)
    if key_counts != value_counts:
        raise IndexError("a map has different numbers of keys and values")
    return pa.MapArray.from_arrays(_offsets(key_counts), key_elements, value_elements, type=kind)


def _arrays(kind: pa.DataType, parts: list[Raw], decode_rows: DecodeRows) -> pa.Array:
    elements, counts = _elements(kind.value_type, kind.value_field.nullable, parts, decode_rows)
    return pa.ListArray.from_arrays(_offsets(counts), elements, type=kind)


def _offsets(counts: list[int]) -> pa.Array:
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.array(offsets)


def _elements(
    kind: pa.DataType, nullable: bool, parts: list[Raw], decode_rows: DecodeRows
) -> tuple[pa.Array, list[int]]:
    """All elements of all arrays in sequence, and the number of elements in each."""
    counts: list[int] = []
    values: list[Any] = []
    for part in parts:
        before = len(values)
        values.extend(_array(kind, part))
        counts.append(len(values) - before)
    missing = [position for position, value in enumerate(values) if value is None]
    if missing and not nullable:
        raise ValueError("an element that cannot be NULL is NULL")
    if is_nested(kind):
        found = _decode(kind, [value for value in values if value is not None], decode_rows)
        valid = np.array([value is not None for value in values], bool)
        return spread(found, valid) if missing else found, counts
    return _scalars(kind, values), counts


def _scalars(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_time(kind) or pa.types.is_timestamp(kind):  # whole numbers of the unit
        return pa.array(values, pa.int32() if kind.bit_width == 32 else pa.int64()).view(kind)
    if pa.types.is_date(kind):
        return pa.array(values, pa.int32()).view(kind)
    return pa.array(values, kind)


def _array(kind: pa.DataType, part: Raw) -> Iterator[Any]:
    """The elements of one array; nested ones as their bytes."""
    (count,) = COUNT.unpack_from(part)
    width = slot_width(kind)
    head = 4 + (count + 31) // 32 * 4
    if count < 0 or head + count * width > len(part):
        raise IndexError("an array is shorter than its elements")
    read = _reader(kind)
    room = len(part)
    for i in range(count):
        if part[4 + (i >> 3)] >> (i & 7) & 1:
            yield None
            continue
        value = read(part, head + i * width)
        if isinstance(value, bytes | str | memoryview):
            room -= len(value)
            if room < 0:
                raise IndexError("the elements of an array are longer than the array")
        yield value


def _reader(kind: pa.DataType) -> Reader:
    code = SLOT_CODES.get(kind)
    if code is not None:
        form = struct.Struct("<" + code)
        return lambda part, at: form.unpack_from(part, at)[0]
    if pa.types.is_time(kind):
        return lambda part, at: _time(COUNT.unpack_from(part, at)[0], kind.unit)
    if pa.types.is_timestamp(kind):
        return _timestamp_reader(kind.unit)
    if pa.types.is_decimal(kind):
        return _decimal_reader(kind)
    if is_nested(kind):
        return lambda part, at: _referred(part, at)
    if pa.types.is_string(kind):
        return lambda part, at: str(_bytes(part, at), "utf-8")
    return lambda part, at: bytes(_bytes(part, at))


def _time(millis: int, unit: str) -> int:
    if not 0 <= millis < DAY_MILLIS:
        raise ValueError("a time lies outside the day")
    return millis // 1000 if unit == "s" else millis * PER_MILLI.get(unit, 1)


def _timestamp_reader(unit: str) -> Reader:
    if unit not in PER_MILLI:
        divisor = 1000 if unit == "s" else 1
        return lambda part, at: LONG.unpack_from(part, at)[0] // divisor

    def read(part: Raw, at: int) -> int:
        nanos, position = REFERENCE.unpack_from(part, at)
        if nanos >= NANOS_PER_MILLI:
            raise ValueError("a timestamp has more than a millisecond of nanoseconds")
        millis: int = LONG.unpack_from(part, position)[0]
        ticks: int = millis * PER_MILLI[unit] + nanos * PER_MILLI[unit] // NANOS_PER_MILLI
        return ticks

    return read


def _decimal_reader(kind: pa.DataType) -> Reader:
    compact = kind.precision <= DECIMAL_COMPACT_MAX

    def read(part: Raw, at: int) -> Decimal:
        if compact:
            unscaled = LONG.unpack_from(part, at)[0]
        else:
            found = _referred(part, at)
            if not 1 <= len(found) <= 16:
                raise ValueError("a decimal takes 1 to 16 bytes")
            unscaled = int.from_bytes(found, "big", signed=True)
        digits = tuple(int(digit) for digit in str(abs(unscaled)))
        return Decimal((int(unscaled < 0), digits, -kind.scale))

    return read


def _bytes(part: Raw, at: int) -> Raw:
    mark = part[at + 7]
    if not mark & INLINE:
        return _referred(part, at)
    size = mark & 0x7F
    if size > INLINE_MAX:
        raise IndexError("an inline value has at most 7 bytes")
    return part[at : at + size]


def _referred(part: Raw, at: int) -> Raw:
    size, position = REFERENCE.unpack_from(part, at)
    if position + size > len(part):
        raise IndexError("a value lies outside its array")
    return part[position : position + size]
