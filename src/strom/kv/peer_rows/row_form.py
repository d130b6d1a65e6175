"""How the peer's compacted rows encode a column's values: an operation and a number per column.

    BOOLEAN TINYINT SMALLINT FLOAT DOUBLE    fixed bytes, little-endian
    INT DATE, BIGINT                         unsigned LEB128 of the 32- or 64-bit pattern (not zigzag)
    TIME(p)                                  milliseconds of the day, as INT
    TIMESTAMP(p), _LTZ                       milliseconds as BIGINT; for p > 3 then nanoseconds of it as INT
    DECIMAL(p, s)                            p ≤ 18: unscaled as BIGINT; else varint length, big-endian two's complement
    STRING BYTES CHAR BINARY(n)              varint length, bytes
    ARRAY MAP ROW                            varint length, nested bytes

Arrow's units tell the precision: s and ms stand for p ≤ 3, us and ns for more.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa

from strom.errors import InvalidTable

BOOL: Final = 0
BYTE: Final = 1
SHORT: Final = 2
WORD: Final = 3
"""Four bytes as they are (FLOAT)."""
LONG: Final = 4
"""Eight bytes as they are (DOUBLE)."""
INT: Final = 5
BIGINT: Final = 6
TIME32: Final = 7
TIME64: Final = 8
MILLIS: Final = 9
"""A timestamp sent as milliseconds only."""
NANOS: Final = 10
"""A timestamp with nanoseconds of the millisecond."""
DECIMAL: Final = 11
WIDE_DECIMAL: Final = 12
SPAN: Final = 13
"""A length and that many bytes: text, bytes, nested values."""
FIXED: Final = 14
"""Like SPAN, for BINARY(n): the length must be n."""

WIDTHS: Final = {
    BOOL: 0, BYTE: 1, SHORT: 2, WORD: 4, LONG: 8, INT: 4, BIGINT: 8, TIME32: 4, TIME64: 8, MILLIS: 8, NANOS: 8,
    DECIMAL: 16, WIDE_DECIMAL: 16, SPAN: 4,
}  # fmt: skip
"""Bytes per value of the Arrow buffer (for SPAN: of an offset; BOOL has bits; FIXED has its own length)."""

DECIMAL_COMPACT_MAX: Final = 18
DAY_MILLIS: Final = 86_400_000

_SIMPLE = {
    pa.bool_(): BOOL, pa.int8(): BYTE, pa.int16(): SHORT, pa.int32(): INT, pa.int64(): BIGINT,
    pa.float32(): WORD, pa.float64(): LONG, pa.date32(): INT, pa.string(): SPAN, pa.binary(): SPAN,
}  # fmt: skip
PER_MILLI: Final = {"us": 1_000, "ns": 1_000_000}


class ColumnForm(NamedTuple):
    """One column's operation, and the number that goes with it."""

    op: int
    number: int = 0
    """TIME, MILLIS: ticks per millisecond, or minus the milliseconds per tick. NANOS: ticks per millisecond. DECIMAL:
    digits. FIXED: bytes."""

    @property
    def width(self) -> int:
        """Bytes per value of the Arrow buffer."""
        return self.number if self.op == FIXED else WIDTHS[self.op]


def form_of(kind: pa.DataType) -> ColumnForm:
    """How values of an Arrow type lie in a row."""
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return ColumnForm(simple)
    if pa.types.is_fixed_size_binary(kind):
        return ColumnForm(FIXED, kind.byte_width)
    if pa.types.is_decimal128(kind):
        return ColumnForm(DECIMAL if kind.precision <= DECIMAL_COMPACT_MAX else WIDE_DECIMAL, kind.precision)
    if pa.types.is_time(kind):
        return ColumnForm(TIME32 if kind.bit_width == 32 else TIME64, _per_milli(kind.unit))
    if pa.types.is_timestamp(kind):
        return ColumnForm(MILLIS if kind.unit in ("s", "ms") else NANOS, _per_milli(kind.unit))
    if is_nested(kind):
        return ColumnForm(SPAN)
    raise InvalidTable(f"{kind} has no form in a compacted row", arrow_type=str(kind))


def is_nested(kind: pa.DataType) -> bool:
    """Whether values are arrays, maps or rows."""
    return bool(pa.types.is_list(kind) or pa.types.is_map(kind) or pa.types.is_struct(kind))


def _per_milli(unit: str) -> int:
    return PER_MILLI.get(unit, -1000 if unit == "s" else 1)
