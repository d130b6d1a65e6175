"""Aggregate functions: which exist, and which columns can have them.

A column of a table with the ``aggregation`` engine may name one (the peer's ``agg_function``:
``{"type": "sum", "parameters": {"delimiter": ";"}}``). As in the peer's SQL, properties can say the same:
``fields.<column>.agg`` = "sum" and ``fields.<column>.<function>.<parameter>``; they become part of the schema when
the table is created.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from strom.errors import InvalidConfig
from strom.model import data_type as types
from strom.model.document import canonical
from strom.model.names import nearest
from strom.model.schema import Column, Schema

DEFAULT = "last_value_ignore_nulls"
DELIMITER = "delimiter"
FIELDS = "fields."
AVERAGE = "avg"
SUM_COLUMN = "sum"
COUNT_COLUMN = "count"
"""``avg`` names the two columns that hold its sum and its count: ``fields.price.avg.sum`` = "price_sum"."""

_NUMBERS = (types.TinyInt, types.SmallInt, types.Int, types.BigInt, types.Float, types.Double, types.Decimal)
_ORDERED = (*_NUMBERS, types.Char, types.String, types.Date, types.Time, types.Timestamp, types.TimestampLtz)
_TEXT = (types.Char, types.String)
_ANY: tuple[type[types.DataType], ...] = (types.DataType,)

FUNCTIONS: Mapping[str, tuple[type[types.DataType], ...]] = {
    "sum": _NUMBERS,
    "product": _NUMBERS,
    "max": _ORDERED,
    "min": _ORDERED,
    "last_value": _ANY,
    "last_value_ignore_nulls": _ANY,
    "first_value": _ANY,
    "first_value_ignore_nulls": _ANY,
    "listagg": _TEXT,
    "string_agg": _TEXT,
    "rbm32": (types.Bytes,),
    "rbm64": (types.Bytes,),
    "bool_and": (types.Boolean,),
    "bool_or": (types.Boolean,),
    "count": (types.Int, types.BigInt),
    AVERAGE: (types.Float, types.Double, types.Decimal),
}
"""Each function with the column types it works on. ``count`` and ``avg`` are Strom's own."""


@dataclass(frozen=True)
class Aggregate:
    """A column's function, with its parameters."""

    function: str
    parameters: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """The text stored in ``Column.aggregation``."""
        value: dict[str, object] = {"type": self.function}
        if self.parameters:
            value["parameters"] = dict(self.parameters)
        return canonical(value)


def aggregate_of(column: Column) -> Aggregate:
    """A column's function, or the default; :class:`InvalidConfig` when it is malformed."""
    if column.aggregation is None:
        return Aggregate(DEFAULT)
    value = json.loads(column.aggregation)
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise InvalidConfig(
            f'Column {column.name!r}: agg_function is {{"type": name, "parameters": {{…}}}}',
            column=column.name,
        )
    parameters = value.get("parameters") or {}
    texts = isinstance(parameters, dict) and all(isinstance(text, str) for text in parameters.values())
    if not texts:
        raise InvalidConfig(
            f"Column {column.name!r}: the parameters of its function must be text", column=column.name
        )
    found = Aggregate(value["type"].lower(), parameters)
    _check(column, found)
    return found


def check_aggregates(schema: Schema) -> None:
    """Refuse functions that do not exist, do not fit their columns, or are on key columns."""
    for column in schema.columns:
        if column.aggregation is None:
            continue
        if column.name in schema.primary_key:
            raise InvalidConfig(
                f"Column {column.name!r} is part of the primary key and is never aggregated",
                column=column.name,
            )
        found = aggregate_of(column)
        if found.function == AVERAGE:
            _check_average(schema, column, found)
    states = [name for column in schema.columns for name in _states(column)]
    if len(set(states)) < len(states):
        raise InvalidConfig(
            "Two averages cannot share the column of a sum or a count", columns=sorted(states)
        )


def _states(column: Column) -> tuple[str, ...]:
    """The columns in which an average keeps its sum and its count."""
    if column.aggregation is None:
        return ()
    found = aggregate_of(column)
    return tuple(found.parameters.values()) if found.function == AVERAGE else ()


def _check_average(schema: Schema, column: Column, found: Aggregate) -> None:
    exact = isinstance(column.type, types.Decimal)
    total, count = (schema.find(found.parameters[name]) for name in (SUM_COLUMN, COUNT_COLUMN))
    for state, name in ((total, SUM_COLUMN), (count, COUNT_COLUMN)):
        if state is None or state.name in schema.primary_key or state.aggregation is not None:
            raise InvalidConfig(
                f"Column {column.name!r}: the {name} of an average is kept in a column of its own, which is not "
                f"{found.parameters[name]!r}",
                column=column.name,
            )
        if not state.type.nullable:
            raise InvalidConfig(
                f"Column {state.name!r} belongs to an average and must be nullable", column=state.name
            )
    assert total is not None
    assert count is not None
    fits = isinstance(total.type, types.Double)
    if exact:
        fits = isinstance(total.type, types.Decimal) and total.type.scale == column.type.scale  # type: ignore[attr-defined]
    if not fits or not isinstance(count.type, types.BigInt):
        wanted = f"DECIMAL(38, {getattr(column.type, 'scale', 0)})" if exact else "DOUBLE"
        raise InvalidConfig(
            f"Column {column.name!r}: its sum needs {wanted} and its count BIGINT, not {total.type} and {count.type}",
            column=column.name,
        )


def with_aggregates(schema: Schema, properties: Mapping[str, str]) -> Schema:
    """The schema with the functions named by the properties ``fields.<column>.…``."""
    wanted = {name: text for name, text in properties.items() if name.startswith(FIELDS)}
    if not wanted:
        return schema
    columns = [_with_aggregate(column, wanted) for column in schema.columns]
    if wanted:
        name = min(wanted)
        raise InvalidConfig(
            f"{name}: it is fields.<column>.agg, or fields.<column>.<function>.<parameter> of its own function",
            property=name,
        )
    return replace(schema, columns=tuple(columns))


def _with_aggregate(column: Column, wanted: dict[str, str]) -> Column:
    """Removes the column's properties from ``wanted``."""
    function = wanted.pop(f"{FIELDS}{column.name}.agg", None)
    if function is None:
        return column
    prefix = f"{FIELDS}{column.name}.{function}."
    parameters = {name[len(prefix) :]: wanted.pop(name) for name in sorted(wanted) if name.startswith(prefix)}
    return replace(column, aggregation=Aggregate(function.lower(), parameters).to_json())


def _check(column: Column, found: Aggregate) -> None:
    kinds = FUNCTIONS.get(found.function)
    if kinds is None:
        raise InvalidConfig(
            f"Column {column.name!r}: there is no aggregate function {found.function!r}"
            f"{nearest(found.function, FUNCTIONS)}",
            column=column.name,
            functions=sorted(FUNCTIONS),
        )
    if not isinstance(column.type, kinds):
        able = ", ".join(sorted(kind.__name__.upper() for kind in kinds))
        raise InvalidConfig(
            f"Column {column.name!r} is {column.type}, but {found.function} needs one of: {able}",
            column=column.name,
        )
    allowed = {DELIMITER} if kinds is _TEXT else set()
    if found.function == AVERAGE:
        allowed = {SUM_COLUMN, COUNT_COLUMN}
        if set(found.parameters) < allowed:
            raise InvalidConfig(
                f"Column {column.name!r}: avg needs fields.{column.name}.avg.sum and fields.{column.name}.avg.count, "
                "the columns that hold its sum and its count",
                column=column.name,
            )
    unknown = sorted(found.parameters.keys() - allowed)
    if unknown:
        raise InvalidConfig(
            f"Column {column.name!r}: {found.function} has no parameter {unknown[0]!r}", column=column.name
        )


def refusing_column(schema: Schema) -> str | None:
    """A column whose aggregate may refuse a valid change because of the value already there, or None.

    Decimals are limited to the digits of their type, lists and bitmaps to a maximum size.
    """
    for column in schema.columns:
        if column.aggregation is None:
            continue
        function = aggregate_of(column).function
        exact = isinstance(column.type, types.Decimal) and function in ("sum", "product", AVERAGE)
        if exact or function in ("listagg", "string_agg", "rbm32", "rbm64"):
            return column.name
    return None
