"""Filters in DuckDB's plan as Strom's predicates, weakened where a predicate cannot express them; None: no filter."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from typing import Any

from strom.model import data_type as types
from strom.model.filters.predicate import And, Compare, In, IsNull, Like, Or, Predicate
from strom.model.filters.predicate_literals import Nanoseconds
from strom.model.schema import Schema

Names = Sequence[str | None]
"""The columns behind the positions in a filter; None for anything else."""

_OPERATORS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LIKES = {
    "prefix": "starts",
    "starts_with": "starts",
    "suffix": "ends",
    "ends_with": "ends",
    "contains": "contains",
}
_DIGITS: dict[type[types.DataType], int] = {
    types.TinyInt: 3,
    types.SmallInt: 5,
    types.Int: 10,
    types.BigInt: 19,
}
"""Of the largest value."""
_WIDER = {"SMALLINT": 5, "INTEGER": 10, "BIGINT": 19, "HUGEINT": 39}
"""Integers of fewer digits fit into DuckDB's type: comparing after such a cast is comparing the column."""


def predicate_of(table_filters: dict[str, Any], names: Names, schema: Schema) -> Predicate | None:
    """A predicate that all rows of a scan in the plan pass."""
    parts = []
    for one in table_filters.get("filters", ()):
        position = one.get("key", -1)
        column = names[position] if 0 <= position < len(names) else None
        if column is not None:
            parts.append(_Filters([column], schema).of(one.get("value", {}), column))
    for one in table_filters.get("multi_column_filters", ()):
        used = [names[at] if 0 <= at < len(names) else None for at in one.get("column_indexes", ())]
        parts.append(_Filters(used, schema).expression(one.get("expr", {})))
    return _all(parts)


def _all(parts: Sequence[Predicate | None]) -> Predicate | None:
    told = [part for part in parts if part is not None]
    return And.of(*told) if told else None


def _any(parts: Sequence[Predicate | None]) -> Predicate | None:
    told = [part for part in parts if part is not None]
    return Or.of(*told) if told and len(told) == len(parts) else None


class _Filters:
    """Reads the filters of one scan; ``names``: the columns that references in an expression stand for."""

    def __init__(self, names: Names, schema: Schema) -> None:
        self._names = names
        self._schema = schema

    def of(self, node: dict[str, Any], column: str) -> Predicate | None:
        """A filter on one column."""
        kind = str(node.get("filter_type", "")).removeprefix("LEGACY_")
        children = node.get("child_filters", ())
        match kind:
            case "CONJUNCTION_AND":
                return _all([self.of(child, column) for child in children])
            case "CONJUNCTION_OR":
                return _any([self.of(child, column) for child in children])
            case "OPTIONAL_FILTER":
                return self.of(node.get("child_filter", {}), column)
            case "CONSTANT_COMPARISON":
                op = _OPERATORS.get(node.get("comparison_type", ""))
                return self._compared(column, op, value_of(node.get("constant", {})))
            case "IN_FILTER":
                return self._is_in(column, [value_of(one) for one in node.get("values", ())])
            case "IS_NULL" | "IS_NOT_NULL":
                return IsNull(column, negated=kind == "IS_NOT_NULL")
            case "EXPRESSION_FILTER":
                return self.expression(node.get("expr", {}))
        return None

    def expression(self, node: dict[str, Any]) -> Predicate | None:
        """A filter as an expression."""
        kind, children = node.get("type", ""), node.get("children", ())
        if kind == "CONJUNCTION_AND":
            return _all([self.expression(child) for child in children])
        if kind == "CONJUNCTION_OR":
            return _any([self.expression(child) for child in children])
        if kind in _OPERATORS and len(children) == 2:
            return self._comparison(_OPERATORS[kind], children[0], children[1])
        if kind == "COMPARE_IN" and children:
            column = self._column(children[0])
            return None if column is None else self._is_in(column, [_constant(one) for one in children[1:]])
        if kind in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL") and len(children) == 1:
            column = self._column(children[0])
            return None if column is None else IsNull(column, negated=kind == "OPERATOR_IS_NOT_NULL")
        if kind == "BOUND_FUNCTION" and len(children) == 2:
            return self._like(node, children)
        return None

    def _like(self, node: dict[str, Any], children: Sequence[dict[str, Any]]) -> Predicate | None:
        path = node.get("qname", {}).get("path", ())
        like, column, text = (
            _LIKES.get(path[-1] if path else ""),
            self._column(children[0]),
            _constant(children[1]),
        )
        if like is None or column is None or not isinstance(text, str):
            return None
        return Like(column, like, text)  # type: ignore[arg-type]

    def _comparison(self, op: str, left: dict[str, Any], right: dict[str, Any]) -> Predicate | None:
        column, value = self._column(left), _constant(right)
        if column is None:
            column, value, op = self._column(right), _constant(left), _TURNED[op]
        return None if column is None else self._compared(column, op, value)

    def _column(self, node: dict[str, Any]) -> str | None:
        """The column in an expression, possibly inside a cast that changes none of its values."""
        if node.get("type") == "OPERATOR_CAST" and len(node.get("children", ())) == 1:
            inner = self._column(node["children"][0])
            wider = inner is not None and _widens(
                self._schema.column(inner).type, node.get("return_type", {})
            )
            return inner if wider else None
        index = int(node.get("index", -1))
        if node.get("type") != "BOUND_REF" or not 0 <= index < len(self._names):
            return None
        return self._names[index]

    def _compared(self, column: str, op: str | None, value: object) -> Predicate | None:
        return None if op is None or value is None else Compare(column, op, value)

    def _is_in(self, column: str, values: Sequence[object]) -> Predicate | None:
        if not values or any(value is None for value in values):
            return None
        return In(column, tuple(values))


def _widens(data_type: types.DataType, target: dict[str, Any]) -> bool:
    """Whether a type converts to DuckDB's without loss: nothing is rounded, nothing is too large."""
    kind = str(target.get("id", ""))
    if isinstance(data_type, types.Timestamp):
        return kind == "TIMESTAMP" and data_type.precision <= 6
    if isinstance(data_type, types.TimestampLtz):
        return kind == "TIMESTAMP WITH TIME ZONE" and data_type.precision <= 6
    if isinstance(data_type, types.Decimal):
        whole, scale = data_type.precision - data_type.scale, data_type.scale
    elif isinstance(data_type, types.TinyInt | types.SmallInt | types.Int | types.BigInt):
        whole, scale = _DIGITS[type(data_type)], 0
    else:
        return False
    if kind == "DECIMAL":
        info = target.get("type_info", {})
        fine = int(info.get("scale", 0))
        return fine >= scale and int(info.get("width", 0)) - fine >= whole
    return scale == 0 and whole < _WIDER.get(kind, 0)


def _constant(node: dict[str, Any]) -> object:
    return value_of(node.get("value", {})) if node.get("type") == "VALUE_CONSTANT" else None


def value_of(constant: dict[str, Any]) -> object:
    """A constant of the plan as a predicate's value; None for NULL and for unknown types."""
    if constant.get("is_null") or "value" not in constant:
        return None
    kind = constant.get("type", {})
    reader = _VALUES.get(str(kind.get("id", "")))
    return None if reader is None else reader(constant["value"], kind)


def _plain(value: Any, kind: dict[str, Any]) -> object:
    return value


def _wide(value: Any, kind: dict[str, Any]) -> int | None:
    if isinstance(value, dict):
        return (int(value["upper"]) << 64) + int(value["lower"])
    return int(value)


def _decimal(value: Any, kind: dict[str, Any]) -> object:
    unscaled = _wide(value, kind)
    scale = int(kind.get("type_info", {}).get("scale", 0))
    return None if unscaled is None else decimal.Decimal(unscaled).scaleb(-scale, decimal.Context(prec=80))


def _moment(ns_per_unit: int) -> Callable[[Any, dict[str, Any]], object]:
    return lambda value, kind: Nanoseconds(int(value) * ns_per_unit)


_VALUES: dict[str, Callable[[Any, dict[str, Any]], object]] = {
    **dict.fromkeys(
        ("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "VARCHAR", "FLOAT", "DOUBLE"), _plain
    ),
    "HUGEINT": _wide,
    "DECIMAL": _decimal,
    "DATE": _moment(86_400 * 10**9),
    "TIME": _moment(1000),
    "TIME_NS": _moment(1),
    "TIMESTAMP_S": _moment(10**9),
    "TIMESTAMP_MS": _moment(10**6),
    "TIMESTAMP": _moment(1000),
    "TIMESTAMP_NS": _moment(1),
    "TIMESTAMP WITH TIME ZONE": _moment(1000),
    "TIMESTAMPTZ_NS": _moment(1),
}
