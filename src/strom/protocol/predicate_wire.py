"""Filters between the model, which names columns, and the wire, which numbers them by field id.

On the wire a literal is of its column's own type (the peer's server reads unfiltered when it is not): a DATE is
days in ``bigint_value``, a TIME milliseconds in ``int_value``, a TIMESTAMP milliseconds and nanoseconds, a DECIMAL
its unscaled digits in the column's scale. Three things go beyond the peer and are only sent to our own servers:
negated text filters, the nanoseconds of a TIME, and timestamps whose milliseconds exceed 64 bits, as ticks of the
column's unit.
"""

from __future__ import annotations

from typing import Any

from strom.errors import InvalidPredicate
from strom.model import data_type as types
from strom.model.filters.predicate import (
    DEPTH_MAX,
    NODES_MAX,
    And,
    Compare,
    Compound,
    In,
    IsNull,
    Leaf,
    Like,
    LikeKind,
    Or,
    Predicate,
)
from strom.model.filters.predicate_literals import Nanoseconds, from_unscaled, nanoseconds, ns_per_tick
from strom.model.schema import Column, Schema
from strom.protocol.message import whole
from strom.protocol.messages import predicate as wire

LEAF, COMPOUND = 0, 1
AND, OR = 0, 1

COMPARISONS = {"=": 0, "<>": 1, "<": 2, "<=": 3, ">": 4, ">=": 5}
IS_NULL, IS_NOT_NULL = 6, 7
LIKES: dict[LikeKind, int] = {"starts": 8, "contains": 9, "ends": 10}
IN, NOT_IN = 11, 12
NEGATED_LIKE = 100
"""Ours: added to the number of a text filter."""

LITERAL_TYPES: dict[type[types.DataType], int] = {
    types.Boolean: 0,
    types.TinyInt: 1,
    types.SmallInt: 2,
    types.Int: 3,
    types.BigInt: 4,
    types.Float: 5,
    types.Double: 6,
    types.Char: 7,
    types.String: 8,
    types.Decimal: 9,
    types.Date: 10,
    types.Time: 11,
    types.Timestamp: 12,
    types.TimestampLtz: 13,
    types.Binary: 14,
    types.Bytes: 15,
}

_PLAIN_FIELDS: dict[type[types.DataType], str] = {
    types.Boolean: "boolean_value",
    types.TinyInt: "int_value",
    types.SmallInt: "int_value",
    types.Int: "int_value",
    types.BigInt: "bigint_value",
    types.Float: "float_value",
    types.Double: "double_value",
    types.Char: "string_value",
    types.String: "string_value",
    types.Date: "bigint_value",
    types.Binary: "binary_value",
    types.Bytes: "binary_value",
}
"""The field of a literal that needs no conversion."""

_COMPARISON_OF = {number: op for op, number in COMPARISONS.items()}
_LIKE_OF = {number: kind for kind, number in LIKES.items()}
_NS_PER_MS = 1_000_000
_INT64_LIMIT = 1 << 63


# --- to the wire ---------------------------------------------------------------------------------------------


def to_wire(predicate: Predicate, schema: Schema) -> wire.WirePredicate:
    """A checked filter, for a table with this schema."""
    if isinstance(predicate, Compound):
        children = [to_wire(child, schema) for child in predicate.children]
        function = AND if isinstance(predicate, And) else OR
        return wire.WirePredicate(
            type=COMPOUND, compound=wire.CompoundPredicate(function=function, children=children)
        )
    assert isinstance(predicate, Leaf)
    column = schema.column(predicate.column)
    function, values = _leaf(predicate)
    literals = [_literal(value, column.type) for value in values]
    return wire.WirePredicate(
        type=LEAF, leaf=wire.LeafPredicate(function=function, field_id=column.id, literals=literals)
    )


def _leaf(leaf: Leaf) -> tuple[int, tuple[Any, ...]]:
    """The function of a leaf and its literals."""
    if isinstance(leaf, Compare):
        assert leaf.type is not None, "check the predicate first"
        return COMPARISONS[leaf.op], (leaf.value,)
    if isinstance(leaf, IsNull):
        return (IS_NOT_NULL if leaf.negated else IS_NULL), ()
    if isinstance(leaf, In):
        assert leaf.type is not None, "check the predicate first"
        return (NOT_IN if leaf.negated else IN), leaf.values
    assert isinstance(leaf, Like)
    return LIKES[leaf.kind] + (NEGATED_LIKE if leaf.negated else 0), (leaf.text,)


def _literal(value: Any, data_type: types.DataType) -> wire.Literal:
    """A physical value of a column's type."""
    kind = type(data_type)
    values: dict[str, Any]
    if kind in _PLAIN_FIELDS:
        values = {_PLAIN_FIELDS[kind]: value}
    elif isinstance(data_type, types.Decimal):
        values = _decimal_values(value, data_type)
    elif isinstance(data_type, types.Time):
        millis, nanos = divmod(nanoseconds(value, data_type), _NS_PER_MS)
        values = {"int_value": millis, "timestamp_nano_of_millis_value": nanos or None}
    else:
        millis, nanos = divmod(nanoseconds(value, data_type), _NS_PER_MS)
        if -_INT64_LIMIT <= millis < _INT64_LIMIT:
            values = {"timestamp_millis_value": millis, "timestamp_nano_of_millis_value": nanos}
        else:
            values = {"bigint_value": value}
    return wire.Literal(literal_type=LITERAL_TYPES[kind], is_null=False, **values)


def _decimal_values(value: Any, data_type: types.Decimal) -> dict[str, Any]:
    sign, digits, exponent = value.as_tuple()
    unscaled = int("".join(map(str, digits))) * 10 ** (exponent + data_type.scale)
    unscaled = -unscaled if sign else unscaled
    if data_type.precision <= 18:
        return {"decimal_value": unscaled}
    return {"decimal_bytes": unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)}


# --- from the wire -------------------------------------------------------------------------------------------


def from_wire(
    message: wire.WirePredicate, schema: Schema, *, depth_max: int = DEPTH_MAX, nodes_max: int = NODES_MAX
) -> Predicate:
    """The filter a message holds, checked against the schema. Raises InvalidPredicate or LimitExceeded."""
    return _read(message, schema).check(schema, depth_max=depth_max, nodes_max=nodes_max)


def _read(message: wire.WirePredicate, schema: Schema) -> Predicate:
    if message.type == LEAF and message.leaf is not None:
        return _read_leaf(message.leaf, schema)
    if message.type != COMPOUND or message.compound is None:
        raise InvalidPredicate(f"A filter of type {message.type} has no such part", type=message.type)
    function = message.compound.function
    if function not in (AND, OR):
        raise InvalidPredicate(f"Filters are joined by 0 (and) or 1 (or), not {function}", function=function)
    children = [_read(child, schema) for child in message.compound.children]
    if not children:
        raise InvalidPredicate("A filter that joins others has none")
    return And.of(*children) if function == AND else Or.of(*children)


def _read_leaf(leaf: wire.LeafPredicate, schema: Schema) -> Predicate:
    column = schema.by_id(leaf.field_id)
    if column is None:
        raise InvalidPredicate(f"No column has the id {leaf.field_id}", field_id=leaf.field_id)
    function = leaf.function
    if function in (IS_NULL, IS_NOT_NULL):
        return IsNull(column.name, negated=function == IS_NOT_NULL)
    if function in (IN, NOT_IN):
        values = tuple(_read_literal(one, column) for one in leaf.literals if not one.is_null)
        return In(column.name, values, negated=function == NOT_IN)
    if len(leaf.literals) != 1 or leaf.literals[0].is_null:
        raise InvalidPredicate(f"Function {function} takes one value", column=column.name)
    value = _read_literal(leaf.literals[0], column)
    if function in _COMPARISON_OF:
        return Compare(column.name, _COMPARISON_OF[function], value)
    negated = function >= NEGATED_LIKE
    kind = _LIKE_OF.get(function - NEGATED_LIKE if negated else function)
    if kind is None:
        raise InvalidPredicate(f"No filter has the function {function}", function=function)
    return Like(column.name, kind, value, negated)


def _read_literal(literal: wire.Literal, column: Column) -> Any:
    """A literal as ``check`` takes it: timestamps in nanoseconds, the rest as Python values."""
    data_type = column.type
    kind = type(data_type)
    if literal.literal_type != LITERAL_TYPES.get(kind):
        raise InvalidPredicate(
            f"Column {column.name!r} is {data_type}, and a literal is of type {literal.literal_type}",
            column=column.name,
        )
    value: Any
    if isinstance(data_type, types.Decimal):
        value = _read_decimal(literal, data_type)
    elif isinstance(data_type, types.Date | types.Time | types.Timestamp | types.TimestampLtz):
        value = _read_moment(literal, data_type)
    else:
        value = getattr(literal, _PLAIN_FIELDS[kind])
        value = bytes(value) if isinstance(value, memoryview | bytearray) else value
    if value is None:
        raise InvalidPredicate(f"A literal for column {column.name!r} has no value", column=column.name)
    return value


def _read_decimal(literal: wire.Literal, data_type: types.Decimal) -> Any:
    if literal.decimal_value is not None:
        return from_unscaled(literal.decimal_value, data_type.scale)
    if literal.decimal_bytes is None or len(literal.decimal_bytes) > 16:
        return None
    unscaled = int.from_bytes(whole(literal.decimal_bytes), "big", signed=True)
    return from_unscaled(unscaled, data_type.scale)


def _read_moment(
    literal: wire.Literal, data_type: types.Date | types.Time | types.Timestamp | types.TimestampLtz
) -> Nanoseconds | None:
    millis = literal.int_value if isinstance(data_type, types.Time) else literal.timestamp_millis_value
    if millis is not None and not isinstance(data_type, types.Date):
        return Nanoseconds(millis * _NS_PER_MS + (literal.timestamp_nano_of_millis_value or 0))
    if literal.bigint_value is not None and not isinstance(data_type, types.Time):
        return Nanoseconds(literal.bigint_value * ns_per_tick(data_type))
    return None
