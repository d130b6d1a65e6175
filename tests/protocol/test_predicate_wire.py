"""A filter arrives as it was sent, whatever it compares with."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import predicates, schemas
from strom.errors import InvalidPredicate, LimitExceeded
from strom.model.filters.predicate import And, Predicate, col
from strom.model.schema import Schema
from strom.protocol.codec import decode, encode
from strom.protocol.messages import predicate as wire
from strom.protocol.predicate_wire import COMPOUND, LEAF, from_wire, to_wire

PRICES = Schema.from_arrow(
    pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("price", pa.decimal128(10, 2)),
            ("day", pa.date32()),
            ("noon", pa.time32("ms")),
            ("at", pa.timestamp("us")),
            ("big", pa.decimal128(38, 3)),
            ("tags", pa.list_(pa.string())),
        ]
    )
)


def sent(predicate: Predicate, schema: Schema) -> wire.WirePredicate:
    """Over the wire, as bytes."""
    return decode(wire.WirePredicate, b"".join(encode(to_wire(predicate, schema))))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_filter_arrives_as_it_was_sent(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    predicate = data.draw(predicates(schema)).check(schema)
    found = from_wire(sent(predicate, schema), schema)
    assert str(found) == str(predicate)
    assert type(found) is type(predicate)


@pytest.mark.parametrize(
    ("predicate", "function", "literal"),
    [
        (col("id") == 5, 0, {"literal_type": 4, "bigint_value": 5}),
        (col("name") != "x", 1, {"literal_type": 8, "string_value": "x"}),
        (col("price") < 12.5, 2, {"literal_type": 9, "decimal_value": 1250}),
        (col("day") <= "1970-01-11", 3, {"literal_type": 10, "bigint_value": 10}),
        (col("noon") > "12:00:00", 4, {"literal_type": 11, "int_value": 43_200_000}),
        (
            col("at") >= "1970-01-01 00:00:01.000001",
            5,
            {"literal_type": 12, "timestamp_millis_value": 1000, "timestamp_nano_of_millis_value": 1000},
        ),
        (col("name").starts_with("x"), 8, {"literal_type": 8, "string_value": "x"}),
        (col("name").contains("x"), 9, {"literal_type": 8, "string_value": "x"}),
        (col("name").ends_with("x"), 10, {"literal_type": 8, "string_value": "x"}),
        (col("big") == -1, 0, {"literal_type": 9, "decimal_bytes": (-1000).to_bytes(2, "big", signed=True)}),
    ],
)
def test_a_leaf_looks_as_the_peer_sends_it(
    predicate: Predicate, function: int, literal: dict[str, Any]
) -> None:
    message = to_wire(predicate.check(PRICES), PRICES)
    expected = wire.Literal(is_null=False, **literal)
    assert message.type == LEAF
    assert message.leaf is not None
    assert message.leaf.function == function
    assert message.leaf.literals == [expected]
    assert PRICES.by_id(message.leaf.field_id) == PRICES.column(next(iter(predicate.columns())))


@pytest.mark.parametrize("precision", [18, 19, 38])
@pytest.mark.parametrize("digits", [0, 1, 127, 128, 255, 256, 32_767, 32_768, 2**56 - 1, 2**56, 10**18 - 1])
def test_decimals_arrive_with_their_sign_whatever_their_width(precision: int, digits: int) -> None:
    """Wide ones travel as the fewest bytes that hold number and sign: at a byte's edge that is one more."""
    schema = Schema.from_arrow(pa.schema([("d", pa.decimal128(precision, 2))]))
    for number in (digits, -digits):
        wanted = (col("d") >= Decimal(number).scaleb(-2)).check(schema)
        sent = b"".join(encode(to_wire(wanted, schema)))
        assert from_wire(decode(wire.WirePredicate, sent), schema) == wanted


def test_a_joined_filter_looks_as_the_peer_sends_it() -> None:
    message = to_wire(((col("id") > 1) | (col("id") < 0)).check(PRICES), PRICES)
    assert message.type == COMPOUND
    assert message.compound is not None
    assert message.compound.function == 1
    assert len(message.compound.children) == 2


def leaf(function: int, *literals: wire.Literal, field_id: int = 0) -> wire.WirePredicate:
    found = wire.LeafPredicate(function=function, field_id=field_id, literals=literals)
    return wire.WirePredicate(type=LEAF, leaf=found)


def big(value: int | None) -> wire.Literal:
    return wire.Literal(literal_type=4, is_null=value is None, bigint_value=value)


def test_null_in_a_list_is_skipped_as_the_peer_does() -> None:
    assert str(from_wire(leaf(11, big(1), big(None), big(2)), PRICES)) == "id in (1, 2)"
    assert str(from_wire(leaf(12), PRICES)) == "id not in ()"


@pytest.mark.parametrize(
    "message",
    [
        wire.WirePredicate(type=2),
        wire.WirePredicate(type=LEAF),
        wire.WirePredicate(type=COMPOUND),
        wire.WirePredicate(type=COMPOUND, compound=wire.CompoundPredicate(function=0)),
        wire.WirePredicate(type=COMPOUND, compound=wire.CompoundPredicate(function=7, children=[leaf(6)])),
        leaf(0),
        leaf(0, big(1), big(2)),
        leaf(0, big(None)),
        leaf(0, wire.Literal(literal_type=4, is_null=False)),
        leaf(0, wire.Literal(literal_type=3, is_null=False, int_value=1)),
        leaf(0, big(1), field_id=99),
        leaf(8, big(1)),
        leaf(13, big(1)),
        leaf(50, big(1)),
        leaf(107, big(1)),
        leaf(6, field_id=-1),
        leaf(0, wire.Literal(literal_type=9, is_null=False, decimal_bytes=bytes(1000)), field_id=6),
        leaf(0, wire.Literal(literal_type=9, is_null=False), field_id=6),
        leaf(0, wire.Literal(literal_type=0, is_null=False, boolean_value=True), field_id=7),
        leaf(0, wire.Literal(literal_type=10, is_null=False, int_value=3), field_id=3),
    ],
    ids=lambda message: repr(message)[10:70],
)
def test_a_filter_that_makes_no_sense_is_refused(message: wire.WirePredicate) -> None:
    with pytest.raises(InvalidPredicate):
        from_wire(message, PRICES)


def test_the_size_of_a_filter_is_bounded() -> None:
    wide = And(tuple(col("id") > number for number in range(50)))
    message = sent(wide.check(PRICES), PRICES)
    assert from_wire(message, PRICES, nodes_max=51).columns() == {"id"}
    with pytest.raises(LimitExceeded):
        from_wire(message, PRICES, nodes_max=50)
    deep: Predicate = col("id") > 0
    for number in range(20):
        deep = (deep & (col("id") > number)) if number % 2 else (deep | (col("id") < number))
    with pytest.raises(LimitExceeded):
        from_wire(sent(deep.check(PRICES), PRICES), PRICES, depth_max=5)
