"""Strom's filters as Spark's, the reverse of ``filters.py``: for rows that Spark reads itself.

Both follow SQL's three-valued logic; NaN equals NaN and is the greatest number in both, and text is compared by
its bytes. A filter without an exact equivalent gives None, and Strom reads the rows.
"""

from __future__ import annotations

import datetime as dt
import decimal
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from strom.model.data_type import Date, Time, Timestamp, TimestampLtz
from strom.model.filters.predicate import And, Compare, In, IsNull, Like, Or, Predicate
from strom.model.filters.predicate_literals import nanoseconds
from strom.model.types import DataType
from strom.spark.connect.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column

_EPOCH = dt.datetime(1970, 1, 1)
_FIRST, _LAST = dt.datetime.min, dt.datetime.max


def where_column(predicate: Predicate) -> Column | None:
    """A checked predicate as a filter for Spark."""
    if isinstance(predicate, And | Or):
        parts = [where_column(child) for child in predicate.children]
        told = [part for part in parts if part is not None]
        if len(told) < len(parts):
            return None
        return reduce(lambda a, b: a & b if isinstance(predicate, And) else a | b, told)
    if isinstance(predicate, IsNull):
        column = named(predicate.column)
        return column.isNotNull() if predicate.negated else column.isNull()
    if isinstance(predicate, Like):
        return _like(predicate)
    if isinstance(predicate, Compare):
        return _compared(predicate)
    if isinstance(predicate, In):
        return _listed(predicate)
    return None


def named(column: str) -> Column:
    """A column by its whole name, including dots."""
    return F.col(quoted(column))


def quoted(name: str) -> str:
    """A name quoted for SQL."""
    return "`" + name.replace("`", "``") + "`"


def _compared(one: Compare) -> Column | None:
    value = _literal(one.value, one.type)
    if value is None:
        return None
    column = named(one.column)
    match one.op:
        case "=":
            return column == value
        case "<>":
            return column != value
        case "<":
            return column < value
        case "<=":
            return column <= value
        case ">":
            return column > value
        case _:
            return column >= value


def _listed(one: In) -> Column | None:
    if not one.values:
        return F.lit(one.negated)
    values = [_literal(value, one.type) for value in one.values]
    if any(value is None for value in values):
        return None
    found = named(one.column).isin(*values)
    return ~found if one.negated else found


def _like(one: Like) -> Column:
    column = named(one.column)
    method = {"starts": column.startswith, "ends": column.endswith, "contains": column.contains}[one.kind]
    found = method(F.lit(one.text))
    return ~found if one.negated else found


def _literal(value: object, kind: DataType | None) -> Column | None:
    """A physical value as a constant of the column's type."""
    if kind is None or isinstance(kind, Time):
        return None
    target = spark_type(kind)
    if isinstance(kind, Date | Timestamp | TimestampLtz):
        assert isinstance(value, int)
        text = _moment(nanoseconds(value, kind), zoned=isinstance(kind, TimestampLtz))
        if text is None:
            return None
        return F.lit(text[:10] if isinstance(kind, Date) else text).cast(target)
    if isinstance(value, decimal.Decimal):
        return F.lit(str(value)).cast(target)
    if isinstance(value, bytes):
        return F.lit(value)
    return F.lit(value).cast(target)


def _moment(ns: int, *, zoned: bool) -> str | None:
    """To the microsecond, independent of the session's time zone; None beyond Python's years."""
    micros, finer = divmod(ns, 1000)
    low, high = (one - _EPOCH for one in (_FIRST, _LAST))
    span = dt.timedelta(microseconds=1)
    if finer or not low // span <= micros <= high // span:
        return None
    text = (_EPOCH + micros * span).isoformat(sep=" ", timespec="microseconds")
    return text + "Z" if zoned else text
