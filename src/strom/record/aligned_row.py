"""Aligned rows: the form in which a batch's statistics hold one minimum or maximum per column.

Null bits, then one slot of 8 bytes per field, then a tail for what does not fit a slot. Format:
docs/formats/record_batch.md, "Aligned rows".

A :class:`Slot` writes and reads the values of one type. Values are *comparable*: whole numbers in the column's own
unit for dates, times and timestamps, ``Decimal`` for decimals, UTF-8 bytes for text. So two of them compare as the
column's values do, whatever the type.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from strom.record import layout as at

_LONG = struct.Struct("<q")
_REFERENCE = struct.Struct("<II")  # low word: length or nanoseconds; high word: position in the row
_MILLIS_PER_SECOND = 1000
_NANOS_PER_MILLI = 1_000_000

Comparable = Any


class ValueSlot(NamedTuple):
    """How values of one type lie in a row."""

    write: Callable[[bytearray, int, Comparable], None]
    read: Callable[[memoryview, int], Comparable]
    largest: int | None = None
    """The largest magnitude the slot can hold, when that is less than what the column can."""


def bits_size(field_count: int) -> int:
    """Bytes of the null bits of a row."""
    return (field_count + 63 + at.ROW_HEADER_BITS) // 64 * 8


def write_row(slots: Sequence[ValueSlot], values: Sequence[Comparable]) -> bytearray:
    """One row; None is null."""
    start = bits_size(len(slots))
    row = bytearray(start + at.ROW_SLOT_LENGTH * len(slots))
    for index, (slot, value) in enumerate(zip(slots, values, strict=True)):
        if value is None:
            bit = index + at.ROW_HEADER_BITS
            row[bit >> 3] |= 1 << (bit & 7)
        else:
            slot.write(row, start + at.ROW_SLOT_LENGTH * index, value)
    return row


def read_field(row: memoryview, field_count: int, index: int, slot: ValueSlot) -> Comparable:
    """One field of a row, None when null. Raises struct.error or IndexError when the row is too short."""
    bit = index + at.ROW_HEADER_BITS
    if row[bit >> 3] & (1 << (bit & 7)):
        return None
    return slot.read(row, bits_size(field_count) + at.ROW_SLOT_LENGTH * index)


def slot_of(kind: pa.DataType) -> ValueSlot | None:
    """The slot of a type, None when statistics do not cover it."""
    number = kind.id
    if number in _SLOTS:
        return _SLOTS[number]
    if number == _TIMESTAMP:
        return _TIMESTAMP_SLOTS[kind.unit]
    if number == _TIME32:
        return _TIME_SLOTS[kind.unit]
    if number == _DECIMAL:
        compact = kind.precision <= at.DECIMAL_COMPACT_PRECISION_MAX
        return _compact_decimal(kind.scale) if compact else _wide_decimal(kind.scale)
    return None


def _plain(code: str) -> ValueSlot:
    form = struct.Struct("<" + code)
    return ValueSlot(
        lambda row, position, value: form.pack_into(row, position, value),
        lambda row, position: form.unpack_from(row, position)[0],
    )


# --- text and bytes -------------------------------------------------------------------------------------------


def _write_bytes(row: bytearray, position: int, value: bytes) -> None:
    size = len(value)
    if size <= at.ROW_INLINE_MAX:
        row[position : position + size] = value
        row[position + at.ROW_SLOT_LENGTH - 1] = at.ROW_INLINE_MARK | size
        return
    _REFERENCE.pack_into(row, position, size, _append(row, value))


def _read_bytes(row: memoryview, position: int) -> bytes:
    mark = row[position + at.ROW_SLOT_LENGTH - 1]
    if mark & at.ROW_INLINE_MARK:
        return bytes(row[position : position + (mark & ~at.ROW_INLINE_MARK)])
    return _referred(row, position)


def _append(row: bytearray, value: bytes) -> int:
    """Put ``value`` into the tail, padded to 8 bytes; return its position."""
    position = len(row)
    row += value
    row += b"\0" * (-len(value) % at.ROW_SLOT_LENGTH)
    return position


def _referred(row: memoryview, position: int) -> bytes:
    size, start = _REFERENCE.unpack_from(row, position)
    if start + size > len(row):
        raise IndexError("a value lies outside its row")
    return bytes(row[start : start + size])


# --- decimals -------------------------------------------------------------------------------------------------


def decimal_of(unscaled: int, scale: int) -> Decimal:
    """Exact, whatever the context's precision."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def unscaled_of(value: Decimal, scale: int) -> int:
    """The whole number that, divided by 10 to the ``scale``, is ``value``."""
    sign, digits, exponent = value.as_tuple()
    assert exponent == -scale
    number = int("".join(map(str, digits)))
    return -number if sign else number


def _compact_decimal(scale: int) -> ValueSlot:
    return ValueSlot(
        lambda row, position, value: _LONG.pack_into(row, position, unscaled_of(value, scale)),
        lambda row, position: decimal_of(_LONG.unpack_from(row, position)[0], scale),
    )


def _wide_decimal(scale: int) -> ValueSlot:
    def write(row: bytearray, position: int, value: Decimal) -> None:
        number = unscaled_of(value, scale)
        content = number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)
        area = _append(row, content.ljust(at.DECIMAL_AREA_LENGTH, b"\0"))
        _REFERENCE.pack_into(row, position, len(content), area)

    def read(row: memoryview, position: int) -> Decimal:
        return decimal_of(int.from_bytes(_referred(row, position), "big", signed=True), scale)

    return ValueSlot(write, read)


# --- times ----------------------------------------------------------------------------------------------------


def _scaled(code: str, factor: int) -> ValueSlot:
    """A coarser unit kept in a finer one."""
    form = struct.Struct("<" + code)
    return ValueSlot(
        lambda row, position, value: form.pack_into(row, position, value * factor),
        lambda row, position: form.unpack_from(row, position)[0] // factor,
        ((1 << (8 * form.size - 1)) - 1) // factor,
    )


def _fine_timestamp(units_per_milli: int) -> ValueSlot:
    """Milliseconds in the tail, the nanoseconds beyond them in the slot."""
    nanos_per_unit = _NANOS_PER_MILLI // units_per_milli

    def write(row: bytearray, position: int, value: int) -> None:
        millis, rest = divmod(value, units_per_milli)
        _REFERENCE.pack_into(row, position, rest * nanos_per_unit, _append(row, _LONG.pack(millis)))

    def read(row: memoryview, position: int) -> int:
        nanos, start = _REFERENCE.unpack_from(row, position)
        millis = int(_LONG.unpack_from(row, start)[0])
        return millis * units_per_milli + int(nanos) // nanos_per_unit

    return ValueSlot(write, read)


_TIMESTAMP = pa.timestamp("ms").id
_TIME32 = pa.time32("ms").id
_DECIMAL = pa.decimal128(1).id
_BYTES = ValueSlot(_write_bytes, _read_bytes)
_SLOTS = {
    pa.bool_().id: _plain("?"),
    pa.int8().id: _plain("b"),
    pa.int16().id: _plain("h"),
    pa.int32().id: _plain("i"),
    pa.int64().id: _plain("q"),
    pa.float32().id: _plain("f"),
    pa.float64().id: _plain("d"),
    pa.date32().id: _plain("i"),
    pa.string().id: _BYTES,
    pa.binary().id: _BYTES,
    pa.binary(1).id: _BYTES,
}
# A time of day is kept in milliseconds: finer ones would come back rounded, so they have no statistics.
_TIME_SLOTS = {"s": _scaled("i", _MILLIS_PER_SECOND), "ms": _plain("i")}
_TIMESTAMP_SLOTS = {
    "s": _scaled("q", _MILLIS_PER_SECOND),
    "ms": _plain("q"),
    "us": _fine_timestamp(1000),
    "ns": _fine_timestamp(_NANOS_PER_MILLI),
}
