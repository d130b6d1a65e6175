"""Spark's conditions as filters of Strom: only those that the servers answer exactly as Spark would.

A condition comes from the catalog's shim as a tree: ``{"column": […]}``, ``{"value", "type"}`` (Spark's internal value
as text: days, microseconds, digits), ``{"call", "args"}``, or ``{"other"}`` for anything else. A literal is used only
if it has the type that Spark sees in the column, so no conversion can change its meaning. Three-valued logic is
Spark's.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from strom.client.cluster.metadata import TableInfo
from strom.client.plan.filters import filter_of
from strom.client.plan.key_filter import keys_named
from strom.errors import InvalidPredicate, LimitExceeded
from strom.model.data_type import DataType
from strom.model.filters.predicate import And, Compare, In, IsNull, Like, LikeKind, Or, Predicate
from strom.model.filters.predicate_literals import Nanoseconds
from strom.model.filters.predicate_text import parse_predicate
from strom.model.schema import Schema
from strom.spark.connect.types import exact_in_spark, spark_type

Node = Mapping[str, Any]

_EPOCH = dt.date(1970, 1, 1)
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LIKES: dict[str, LikeKind] = {"STARTS_WITH": "starts", "ENDS_WITH": "ends", "CONTAINS": "contains"}


class Pushed(NamedTuple):
    """How the conditions of a query are pushed."""

    where: Predicate | None
    """The filter of the scan, including ``where``."""
    exact: tuple[int, ...]
    """The conditions that it contains."""
    rows_max: int | None
    """How many rows can pass, if the filter names whole keys."""


def push(table: TableInfo, where: str | None, conditions: Sequence[Node]) -> Pushed:
    """The filter of a scan with ``where`` and these conditions."""
    found = [_translated(table.schema, one) for one in conditions]
    parts = [] if where is None else [parse_predicate(where).check(table.schema)]
    parts += [one for one in found if one is not None]
    exact = tuple(number for number, one in enumerate(found) if one is not None)
    if not parts:
        return Pushed(None, (), None)
    try:
        checked = And.of(*parts).check(table.schema)
    except LimitExceeded:
        return Pushed(None if where is None else parts[0], (), None)
    named = keys_named(table, filter_of(checked, table.schema)) if table.schema.primary_key else None
    return Pushed(checked, exact, None if named is None else named.keys.num_rows)


def equalities(schema: Schema, conditions: Iterable[Node]) -> dict[str, Any] | None:
    """``a = 1 and b = 'x'`` as values by column; None for any other condition."""
    found: dict[str, Any] = {}
    for one in conditions:
        call, args = one.get("call"), one.get("args", ())
        if call == "AND":
            inner = equalities(schema, args)
        elif call in ("=", "<=>") and (pair := _pair(schema, args)) is not None:
            inner = {pair[0]: pair[1]}
        else:
            return None
        if inner is None or inner.keys() & found.keys():
            return None
        found |= inner
    return found


def everything(conditions: Sequence[Node]) -> bool:
    """Whether the conditions let every row pass."""
    return all(one.get("value") == "true" and "column" not in one for one in conditions)


def _translated(schema: Schema, node: Node) -> Predicate | None:
    """A condition as a checked filter; None if the servers would answer differently from Spark."""
    try:
        predicate = _predicate(schema, node)
        return None if predicate is None else predicate.check(schema)
    except (InvalidPredicate, LimitExceeded):
        return None


def _predicate(schema: Schema, node: Node) -> Predicate | None:
    call, args = node.get("call"), node.get("args", ())
    if call in ("AND", "OR", "NOT"):
        return _joined(call, [_predicate(schema, one) for one in args])
    if call in ("IS_NULL", "IS_NOT_NULL"):
        column = _column(schema, args[0])
        return None if column is None else IsNull(column, negated=call == "IS_NOT_NULL")
    if call == "IN":
        return _in(schema, args)
    if call in _LIKES or call == "<=>" or call in _MIRRORED:
        return _compared(schema, str(call), args)
    return None


def _joined(call: str, parts: list[Predicate | None]) -> Predicate | None:
    told = [one for one in parts if one is not None]
    if len(told) < len(parts):
        return None
    if call == "NOT":
        return ~told[0]
    return And.of(*told) if call == "AND" else Or.of(*told)


def _in(schema: Schema, args: Sequence[Node]) -> Predicate | None:
    column = _column(schema, args[0])
    if column is None:
        return None
    values = [literal(schema.column(column).type, one) for one in args[1:]]
    # with a NULL in the list, NOT IN is never true
    return None if any(one is None for one in values) else In(column, tuple(values))


def _compared(schema: Schema, call: str, args: Sequence[Node]) -> Predicate | None:
    pair = _pair(schema, args)
    if pair is None:
        return None
    column, value = pair
    if call in _LIKES:
        in_order = "column" in args[0] and isinstance(value, str)
        return Like(column, _LIKES[call], value) if in_order else None
    if call == "<=>":  # never NULL, not even for a NULL
        return And.of(IsNull(column, negated=True), Compare(column, "=", value))
    return Compare(column, call if "column" in args[0] else _MIRRORED[call], value)


def _pair(schema: Schema, args: Sequence[Node]) -> tuple[str, Any] | None:
    """A column and a literal, in either order."""
    if len(args) != 2:
        return None
    left, right = args if "column" in args[0] else (args[1], args[0])
    column = _column(schema, left)
    value = None if column is None else literal(schema.column(column).type, right)
    return None if column is None or value is None else (column, value)


def _column(schema: Schema, node: Node) -> str | None:
    path = node.get("column")
    if not isinstance(path, list) or len(path) != 1:
        return None
    column = schema.find(str(path[0]))
    return None if column is None or not exact_in_spark(column.type) else column.name


def literal(kind: DataType, node: Node) -> Any:
    """A literal of the column's type; None for NULL and for any other type."""
    text = node.get("value")
    if text is None or node.get("type") != spark_type(kind).json():
        return None
    read = _READERS.get(spark_type(kind).typeName().partition("(")[0])
    try:
        return None if read is None else read(str(text))
    except (ValueError, OverflowError):  # a date beyond Python's years
        return None


def _double(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


_READERS: dict[str, Callable[[str], Any]] = {
    "boolean": lambda text: text == "true",
    "byte": int,
    "short": int,
    "integer": int,
    "long": int,
    "float": _double,
    "double": _double,
    "decimal": Decimal,
    "string": str,
    "binary": bytes.fromhex,
    "date": lambda text: _EPOCH + dt.timedelta(days=int(text)),
    "time": lambda text: Nanoseconds(int(text)),
    "timestamp": lambda text: Nanoseconds(int(text) * 1000),
    "timestamp_ntz": lambda text: Nanoseconds(int(text) * 1000),
}
"""By Spark's type name: parses the text of its internal value."""
