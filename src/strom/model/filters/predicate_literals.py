"""Literals of a predicate: from what people write to the column's physical value, with the same meaning.

A checked literal is the *physical* value of the column's type: days for DATE, ticks of the column's unit for TIME and
the TIMESTAMPs, ``decimal.Decimal`` for DECIMAL, and the plain Python value for the rest. If the column's type cannot
hold the literal (5.5 for an INT, a nanosecond for a TIMESTAMP(3), 1000 for a TINYINT), the comparison is rewritten with
the same meaning, also for NULL: ``id > 5.5`` becomes ``id > 5``, and ``tiny = 1000`` becomes ``tiny > 127``, which no
row satisfies. Only FLOAT and DOUBLE round, to the nearest value of the type.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import struct
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from strom.errors import InvalidPredicate
from strom.model import data_type as types
from strom.model.document import encodable

Value = bool | int | float | str | bytes | decimal.Decimal
"""A physical literal."""

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")

NS_PER_SECOND = 10**9
NS_PER_DAY = 86_400 * NS_PER_SECOND
TICKS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EXPONENT_MAX = 400
"""Beyond 10**400 a number is larger than any column value; exact arithmetic on it would only waste memory."""

_WIDTHS: dict[type[types.DataType], int] = {
    types.TinyInt: 8,
    types.SmallInt: 16,
    types.Int: 32,
    types.BigInt: 64,
}
_ABOVE = {"=": ">", "<>": "<=", "<": "<=", "<=": "<=", ">": ">", ">=": ">"}
_BELOW = {"=": "<", "<>": ">=", "<": "<", "<=": "<", ">": ">=", ">=": ">="}
_CLOCK = r"(?P<hour>\d{2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.(?P<fraction>\d{1,9}))?)?"
_MOMENT = re.compile(
    r"(?P<date>[+-]?\d{4,12}-\d{2}-\d{2})(?:[T ]" + _CLOCK + r"\s*(?P<zone>Z|[+-]\d{2}:?\d{2})?)?", re.ASCII
)
_TIME = re.compile(_CLOCK, re.ASCII)


class Nanoseconds(int):
    """A moment as a raw literal: nanoseconds since 1970, or since midnight for TIME. Finer than Python's datetime."""


def coerce(op: str, value: object, data_type: types.DataType, column: str) -> tuple[str, Value]:
    """The comparison of a column of this type with this literal, in physical values."""
    assert op in OPERATORS
    value = _plain(value)
    if isinstance(data_type, types.Boolean):
        return op, _bool(value, data_type, column)
    if isinstance(data_type, types.String | types.Char):
        return op, _text(value, data_type, column)
    if isinstance(data_type, types.Bytes | types.Binary):
        return op, _bytes(value, data_type, column)
    if isinstance(data_type, types.Float | types.Double):
        return _float(op, value, data_type, column)
    if isinstance(data_type, types.Date | types.Time | types.Timestamp | types.TimestampLtz):
        low, high = tick_bounds(data_type)
        return snap(op, Fraction(_moment(value, data_type, column), ns_per_tick(data_type)), low, high)
    if isinstance(data_type, types.Decimal):
        edge = 10**data_type.precision - 1
        op, unscaled = snap(op, _number(value, data_type, column) * 10**data_type.scale, -edge, edge)
        return op, from_unscaled(unscaled, data_type.scale)
    width = _WIDTHS.get(type(data_type))
    if width is None:
        raise InvalidPredicate(
            f"Column {column!r} is {data_type}: it can only be compared with IS NULL", column=column
        )
    edge = 1 << (width - 1)
    return snap(op, _number(value, data_type, column), -edge, edge - 1)


def snap(op: str, exact: Fraction | float, low: int, high: int) -> tuple[str, int]:
    """Rewrite a comparison with any number as an equivalent one with an integer between ``low`` and ``high``.

    Equivalent in three-valued logic: NULL stays NULL, because the column is still compared.
    """
    if exact > high:
        return _ABOVE[op], high
    if exact < low:
        return _BELOW[op], low
    floor = math.floor(exact)
    if floor == exact:
        return op, floor
    if op in ("=", "<>"):
        return _ABOVE[op], high
    return ("<=" if op in ("<", "<=") else ">"), floor


def ns_per_tick(data_type: types.DataType) -> int:
    """Nanoseconds in one unit of the physical value of DATE, TIME or a TIMESTAMP."""
    if isinstance(data_type, types.Date):
        return NS_PER_DAY
    assert isinstance(data_type, types.Time | types.Timestamp | types.TimestampLtz)
    return NS_PER_SECOND // TICKS_PER_SECOND[data_type.unit]


def tick_bounds(data_type: types.DataType) -> tuple[int, int]:
    """The smallest and largest physical value of DATE, TIME or a TIMESTAMP."""
    if isinstance(data_type, types.Time):
        return 0, NS_PER_DAY // ns_per_tick(data_type) - 1
    edge = 1 << (31 if isinstance(data_type, types.Date) else 63)
    return 1 - edge, edge - 1


def nanoseconds(value: int, data_type: types.DataType) -> Nanoseconds:
    """A physical DATE, TIME or TIMESTAMP value in nanoseconds."""
    return Nanoseconds(value * ns_per_tick(data_type))


def from_unscaled(unscaled: int, scale: int) -> decimal.Decimal:
    """An exact decimal from its digits. Arithmetic would round to the context's precision."""
    return decimal.Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def order_key(value: Value) -> tuple[int, Any]:
    """A sort key for literals and statistics that orders as predicates do: NaN last, equal to itself."""
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (0, value)


def text_of(value: object, data_type: types.DataType | None) -> str:
    """A literal as predicate text; reading and checking it again gives the same value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"'{value}'"
    if isinstance(value, decimal.Decimal):
        return format(value, "f") if value.is_finite() else f"'{value}'"
    if isinstance(value, int) and isinstance(
        data_type, types.Date | types.Time | types.Timestamp | types.TimestampLtz
    ):
        return f"'{_moment_text(value, data_type)}'"
    if isinstance(value, int) and not isinstance(value, Nanoseconds):
        return str(value)
    return "'" + str(value).replace("'", "''") + "'"


# --- reading what people write -------------------------------------------------------------------------------


def _plain(value: object) -> object:
    """NumPy and Arrow scalars as Python values."""
    if isinstance(value, np.datetime64):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    as_py = getattr(value, "as_py", None)
    return as_py() if callable(as_py) else value


def _refuse(value: object, data_type: types.DataType, column: str, example: str) -> NoReturn:
    if value is None:
        raise InvalidPredicate(
            f"Column {column!r} cannot be compared with NULL, which is never true. Write IS NULL or IS NOT NULL",
            column=column,
        )
    shown = repr(value)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    raise InvalidPredicate(
        f"Column {column!r} is {data_type.sql_name()}, but {shown} is not; write {example}",
        column=column,
        type=data_type.sql(),
    )


def _bool(value: object, data_type: types.DataType, column: str) -> bool:
    if not isinstance(value, bool):
        _refuse(value, data_type, column, "true or false")
    return value


def _text(value: object, data_type: types.DataType, column: str) -> str:
    if not isinstance(value, str):
        _refuse(value, data_type, column, "text in quotes: 'abc'")
    if not encodable(value):
        _refuse(value, data_type, column, "text that can be encoded: half a surrogate pair is no character")
    return value


def _bytes(value: object, data_type: types.DataType, column: str) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        _refuse(value, data_type, column, "bytes: b'\\x01\\x02' in Python, X'0102' in text")
    found = bytes(value)
    if isinstance(data_type, types.Binary) and len(found) != data_type.length:
        _refuse(value, data_type, column, f"exactly {data_type.length} bytes")
    return found


def _number(value: object, data_type: types.DataType, column: str) -> Fraction | float:
    """The exact number, or plus or minus infinity. NaN is above every number."""
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        _refuse(value, data_type, column, "a number without quotes")
    if isinstance(value, float):
        # A float means its shortest text: 0.1 is one tenth, not the nearest binary number.
        value = decimal.Decimal(repr(value))
    if isinstance(value, int):
        return Fraction(value)
    if value.is_nan() or value == decimal.Decimal("Infinity"):
        return math.inf
    if value == decimal.Decimal("-Infinity") or (value.adjusted() > _EXPONENT_MAX and value < 0):
        return -math.inf
    if value.adjusted() > _EXPONENT_MAX:
        return math.inf
    if value.adjusted() < -_EXPONENT_MAX:
        return Fraction(int(value > 0) - int(value < 0), 10**_EXPONENT_MAX)
    return Fraction(value)


def _float(op: str, value: object, data_type: types.DataType, column: str) -> tuple[str, float]:
    if isinstance(value, str) and value.lower() in ("nan", "inf", "infinity", "-inf", "-infinity"):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
        _refuse(value, data_type, column, "a number without quotes, 'NaN' or 'Infinity'")
    if isinstance(value, decimal.Decimal) and value.is_nan():
        return op, math.nan
    try:
        found = float(value)
        rounded = found if isinstance(data_type, types.Double) else _rounded_to_float(found)
    except OverflowError:
        rounded = math.inf if value > 0 else -math.inf
    if math.isinf(rounded) and value not in (math.inf, -math.inf):
        return _beyond_floats(op, rounded)
    return op, rounded


def _rounded_to_float(value: float) -> float:
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    assert isinstance(rounded, float)
    return rounded


def _beyond_floats(op: str, infinity: float) -> tuple[str, float]:
    """A finite literal beyond the column's type lies between its largest value and infinity."""
    if op in ("=", "<>"):
        return (">" if op == "=" else "<="), math.nan  # nothing is above NaN; everything is at most NaN
    if infinity > 0:
        return ("<" if op in ("<", "<=") else ">="), infinity
    return ("<=" if op in ("<", "<=") else ">"), infinity


def _moment(value: object, data_type: types.DataType, column: str) -> int:
    """Nanoseconds since 1970, or since midnight for TIME."""
    if isinstance(value, Nanoseconds):
        return int(value)
    if isinstance(data_type, types.Time):
        return _time_of_day(value, data_type, column)
    zoned = isinstance(data_type, types.TimestampLtz)
    if isinstance(value, dt.datetime):
        return _datetime_ns(value, zoned, data_type, column)
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days * NS_PER_DAY
    match = _MOMENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or (match["zone"] and not zoned):
        _refuse(value, data_type, column, _example(data_type))
    try:
        days = int(np.datetime64(match["date"], "D").astype(np.int64))
    except ValueError:
        _refuse(value, data_type, column, _example(data_type))
    if match["hour"] is None:
        return days * NS_PER_DAY
    return days * NS_PER_DAY + _clock_ns(match, value, data_type, column) - _zone_ns(match["zone"])


def _datetime_ns(value: dt.datetime, zoned: bool, data_type: types.DataType, column: str) -> int:
    if value.tzinfo is not None and not zoned:
        _refuse(value, data_type, column, "a datetime without a time zone: the column holds a wall clock")
    offset = value.utcoffset() or dt.timedelta()
    since = value.replace(tzinfo=None) - offset - dt.datetime(1970, 1, 1)
    whole = (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds
    return whole * 1000 + int(
        getattr(value, "nanosecond", 0)
    )  # pandas keeps the last three digits separately


def _time_of_day(value: object, data_type: types.DataType, column: str) -> int:
    if isinstance(value, dt.time) and value.tzinfo is None:
        seconds = value.hour * 3600 + value.minute * 60 + value.second
        return seconds * NS_PER_SECOND + value.microsecond * 1000
    match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        _refuse(value, data_type, column, _example(data_type))
    return _clock_ns(match, value, data_type, column)


def _clock_ns(match: re.Match[str], value: object, data_type: types.DataType, column: str) -> int:
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"] or 0)
    if hour > 23 or minute > 59 or second > 59:
        _refuse(value, data_type, column, _example(data_type))
    fraction = int((match["fraction"] or "").ljust(9, "0"))
    return (hour * 3600 + minute * 60 + second) * NS_PER_SECOND + fraction


def _zone_ns(zone: str | None) -> int:
    if zone in (None, "Z"):
        return 0
    assert zone is not None
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return (-minutes if zone[0] == "-" else minutes) * 60 * NS_PER_SECOND


def _example(data_type: types.DataType) -> str:
    if isinstance(data_type, types.Date):
        return "'2024-12-31'"
    if isinstance(data_type, types.Time):
        return "'23:59:59.5'"
    return "'2024-12-31 23:59:59.5'" + (
        " (UTC, or with an offset)" if isinstance(data_type, types.TimestampLtz) else ""
    )


def _moment_text(
    value: int, data_type: types.Date | types.Time | types.Timestamp | types.TimestampLtz
) -> str:
    if isinstance(data_type, types.Date):
        return _calendar_text(value, "D")
    if isinstance(data_type, types.Time):
        seconds, rest = divmod(value * ns_per_tick(data_type), NS_PER_SECOND)
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:09}"
    return _calendar_text(value, data_type.unit).replace("T", " ")


def _calendar_text(ticks: int, unit: str) -> str:
    return str(np.array([ticks], np.int64).astype(f"datetime64[{unit}]")[0])
