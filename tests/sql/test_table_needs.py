"""What is read from DuckDB's plan asks for every row and column that may matter, and where it is not sure, for all."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pytest

from strom.model.filters.predicate import And, Compare, In, IsNull, Or, Predicate
from strom.model.schema import Schema
from strom.model.table import TablePath
from strom.sql.plan_filters import predicate_of
from strom.sql.table_needs import VIRTUAL_COLUMNS_FROM, TableNeed, needs_of
from strom.sql.tables import _same

T = TablePath("db", "t")
SCHEMA = Schema.from_arrow(
    pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("price", pa.decimal128(6, 2)),
            ("small", pa.int8()),
            ("at", pa.timestamp("us")),
        ]
    )
)
EVERYTHING = TableNeed(frozenset(SCHEMA.names), None)


def constant(value: object, kind: str = "BIGINT") -> dict[str, Any]:
    return {"type": {"id": kind}, "value": value, "is_null": value is None}


def compared(value: object, op: str = "EQUAL", kind: str = "BIGINT") -> dict[str, Any]:
    return {
        "filter_type": "CONSTANT_COMPARISON",
        "comparison_type": f"COMPARE_{op}",
        "constant": constant(value, kind),
    }


def get(*columns: int, filters: Any = (), table: str = "t") -> dict[str, Any]:
    return {
        "type": "LOGICAL_GET",
        "function_data": {"schema": "db", "table": table},
        "column_indexes": [{"index": one} for one in columns],
        "table_filters": {"filters": [{"key": at, "value": one} for at, one in filters]},
    }


def asked(*nodes: dict[str, Any], mentions: int | None = None) -> TableNeed:
    plan = {"type": "LOGICAL_PROJECTION", "children": list(nodes)}
    return needs_of([plan], {T: SCHEMA}, {T: len(nodes) if mentions is None else mentions})[T]


def test_a_table_is_asked_for_what_any_mention_of_it_wants() -> None:
    first, second = get(0, 1, filters=[(0, compared(7))]), get(2, 0, filters=[(1, compared(9))])
    seven, nine = (Compare("id", "=", value).check(SCHEMA) for value in (7, 9))
    assert asked(first) == TableNeed(frozenset({"id", "name"}), seven)
    both = asked(first, second)
    assert both.columns == {"id", "name", "price"}
    assert isinstance(both.where, Or)
    assert set(both.where.children) == {seven, nine}
    assert asked(first, get(1)) == TableNeed(frozenset({"id", "name"}), None), "one mention wants all rows"
    assert asked(get(VIRTUAL_COLUMNS_FROM, 1)).columns == {"name"}


def test_where_the_plan_does_not_show_every_mention_all_is_asked_for() -> None:
    one = get(0, filters=[(0, compared(7))])
    assert asked(one, mentions=2) == EVERYTHING
    assert asked(one, {"type": "LOGICAL_EMPTY_RESULT"}, mentions=1) == EVERYTHING
    assert asked(get(0, table="other"), mentions=1) == EVERYTHING
    assert needs_of(None, {T: SCHEMA}, {T: 1})[T] == EVERYTHING


def test_a_filter_on_a_part_of_a_column_is_none_on_the_column() -> None:
    node = get(0, filters=[(0, compared(7))])
    node["column_indexes"][0]["child_indexes"] = [{"index": 1}]
    assert asked(node) == TableNeed(frozenset({"id"}), None)


def found(filter: dict[str, Any], column: str = "id") -> Predicate | None:
    return predicate_of({"filters": [{"key": 0, "value": filter}]}, [column], SCHEMA)


def test_what_a_filter_cannot_say_weakens_it_and_never_the_other_way_round() -> None:
    known, unknown = compared(7), {"filter_type": "BLOOM_FILTER"}
    both = {"filter_type": "CONJUNCTION_AND", "child_filters": [known, unknown]}
    either = {"filter_type": "CONJUNCTION_OR", "child_filters": [known, unknown]}
    assert found(both) == Compare("id", "=", 7)
    assert found(either) is None
    assert found({"filter_type": "IN_FILTER", "values": [constant(1), constant(2)]}) == In("id", (1, 2))
    assert found({"filter_type": "IN_FILTER", "values": [constant(1), constant(None)]}) is None
    assert found({"filter_type": "IS_NOT_NULL"}) == IsNull("id", negated=True)
    assert found(compared(None)) is None
    two = predicate_of(
        {"filters": [{"key": 0, "value": known}, {"key": 5, "value": known}, {"key": 1, "value": known}]},
        ["id", None],
        SCHEMA,
    )
    assert two == Compare("id", "=", 7), "a place that is no column says nothing"


@pytest.mark.parametrize(
    ("column", "target", "same"),
    [
        ("id", {"id": "HUGEINT"}, True),
        ("id", {"id": "INTEGER"}, False),
        ("small", {"id": "INTEGER"}, True),
        ("small", {"id": "DECIMAL", "type_info": {"width": 5, "scale": 2}}, True),
        ("small", {"id": "DECIMAL", "type_info": {"width": 4, "scale": 2}}, False),
        ("price", {"id": "DECIMAL", "type_info": {"width": 8, "scale": 3}}, True),
        ("price", {"id": "DECIMAL", "type_info": {"width": 8, "scale": 1}}, False),  # rounds
        ("price", {"id": "DECIMAL", "type_info": {"width": 6, "scale": 3}}, False),  # too narrow
        ("price", {"id": "BIGINT"}, False),
        ("at", {"id": "TIMESTAMP"}, True),
        ("at", {"id": "DATE"}, False),
        ("name", {"id": "BLOB"}, False),
    ],
)
def test_a_cast_is_seen_through_only_where_it_changes_no_value(
    column: str, target: dict[str, Any], same: bool
) -> None:
    cast = {"type": "OPERATOR_CAST", "return_type": target, "children": [{"type": "BOUND_REF", "index": 0}]}
    value = {"type": "VALUE_CONSTANT", "value": constant(3)}
    for left, right, op in ((cast, value, "<"), (value, cast, ">")):
        expression = {"type": "COMPARE_LESSTHAN", "children": [left, right]}
        filter = {"filter_type": "EXPRESSION_FILTER", "expr": expression}
        assert found(filter, column) == (Compare(column, op, 3) if same else None)


def test_decimals_and_wide_numbers_of_the_plan_are_their_values() -> None:
    kind = {"id": "DECIMAL", "type_info": {"width": 6, "scale": 2}}
    price = {"type": kind, "value": -1234, "is_null": False}
    node = {
        "filter_type": "CONSTANT_COMPARISON",
        "comparison_type": "COMPARE_GREATERTHAN",
        "constant": price,
    }
    assert found(node, "price") == Compare("price", ">", decimal.Decimal("-12.34"))
    wide = compared({"upper": -1, "lower": 2**64 - 5}, kind="HUGEINT")
    assert found(wide) == Compare("id", "=", -5)
    assert found(
        {
            "filter_type": "CONJUNCTION_AND",
            "child_filters": [compared(1, "GREATERTHAN"), compared(5, "LESSTHAN")],
        }
    ) == And((Compare("id", ">", 1), Compare("id", "<", 5)))


def test_a_name_in_another_case_is_a_table_only_if_it_is_one_alone() -> None:
    assert _same("orders", ["Orders", "other"]) == "Orders"
    assert _same("orders", ["Orders", "orders"]) == "orders"
    assert _same("ORDERS", ["Orders", "orders"]) is None
    assert _same("order", ["Orders"]) is None
