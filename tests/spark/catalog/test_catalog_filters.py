"""Spark's conditions as the servers' filters: equal to Spark's logic, or left to Spark."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.client.cluster.metadata import TableInfo
from strom.model.schema import Schema
from strom.model.table import TableDescription, TablePath
from strom.spark.catalog.catalog_filters import Pushed, equalities, everything, push
from strom.spark.connect.types import spark_type

ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("wall", pa.timestamp("ns")),
        ("ok", pa.bool_()),
        ("price", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
        ("row", pa.struct([("a", pa.int32())])),
    ]
)
SCHEMA = Schema.from_arrow(ARROW)
ROWS = pa.RecordBatch.from_pylist(
    [
        {"id": 1, "n": 5, "x": 0.5, "name": "ann"},
        {"id": 2, "n": None, "x": float("nan"), "name": "bob"},
        {"id": 3, "n": 7, "x": None, "name": None},
        {"id": None, "n": 5, "x": -1.0, "name": "anna"},
    ],
    schema=ARROW,
)


def table(*key: str) -> TableInfo:
    schema = Schema.from_arrow(ARROW, primary_key=key)
    return TableInfo(7, TablePath("shop", "t"), TableDescription(schema, bucket_count=1), 0, 0)


def column(*path: str) -> dict[str, Any]:
    return {"column": list(path)}


def value(name: str, text: str | None) -> dict[str, Any]:
    return {"value": text, "type": spark_type(SCHEMA.column(name).type).json()}


def call(name: str, *args: dict[str, Any]) -> dict[str, Any]:
    return {"call": name, "args": list(args)}


def pushed(*conditions: dict[str, Any], where: str | None = None, key: tuple[str, ...] = ()) -> Pushed:
    return push(table(*key), where, conditions)


def test_a_condition_of_each_kind_becomes_a_filter() -> None:
    cases = {
        "id = 7": call("=", column("id"), value("id", "7")),
        "id < 7": call(">", value("id", "7"), column("id")),
        "name is null": call("IS_NULL", column("name")),
        "starts_with(name, 'a''b')": call("STARTS_WITH", column("name"), value("name", "a'b")),
        "n in (1, 2)": call("IN", column("n"), value("n", "1"), value("n", "2")),
        "day = '2026-11-15'": call("=", column("day"), value("day", "20772")),
        "ok = true": call("=", column("ok"), value("ok", "true")),
        "price >= 1.50": call(">=", column("price"), value("price", "1.5")),
        "raw = X'0aff'": call("=", column("raw"), value("raw", "0aff")),
        "name is not null and name = 'x'": call("<=>", column("name"), value("name", "x")),
        "n <> 3 or id > 1": call(
            "NOT",
            call("AND", call("=", column("n"), value("n", "3")), call("<=", column("id"), value("id", "1"))),
        ),
    }
    for text, condition in cases.items():
        found = pushed(condition)
        assert found.exact == (0,)
        assert str(found.where) == text


def test_an_instant_is_the_same_one_in_every_time_zone() -> None:
    found = pushed(call("<", column("at"), value("at", "1700000000123456")))
    assert str(found.where) == "at < '2023-11-14 22:13:20.123456'"  # UTC, as filters are


def test_what_the_servers_would_see_differently_stays_with_spark() -> None:
    left = [
        call("=", column("row", "a"), value("n", "1")),
        call("=", column("wall"), {"value": "1", "type": '"timestamp_ntz"'}),  # nanoseconds, which Spark cuts
        call("=", column("n"), value("id", "1")),  # a cast hides between the two
        call("=", column("n"), value("n", None)),
        call("IN", column("n"), value("n", "1"), value("n", None)),
        call("=", call("UPPER", column("name")), value("name", "X")),
        call("=", column("n"), column("id")),
        call("=", column("gone"), value("n", "1")),
        call("OR", call("=", column("n"), value("n", "1")), {"other": "something"}),
        {"other": "something"},
    ]
    found = pushed(*left)
    assert found == Pushed(None, (), None)


def test_only_some_conditions_may_be_exact_and_the_filter_of_the_options_stays() -> None:
    found = pushed({"other": "?"}, call("=", column("n"), value("n", "1")), where="id > 3 or name = 'x'")
    assert found.exact == (1,)
    assert str(found.where) == "(id > 3 or name = 'x') and n = 1"


def test_a_filter_that_names_keys_tells_how_many_rows_can_pass() -> None:
    by_id = call("IN", column("id"), value("id", "1"), value("id", "2"))
    by_name = call("=", column("name"), value("name", "x"))
    assert pushed(by_id, key=("id",)).rows_max == 2
    assert pushed(by_id, by_name, key=("id", "name")).rows_max == 2
    assert pushed(by_name, key=("id",)).rows_max is None
    assert pushed(by_id).rows_max is None


def test_equalities_are_values_by_column() -> None:
    day = call("<=>", column("day"), value("day", "0"))
    name = call("=", column("name"), value("name", "x"))
    found = equalities(SCHEMA, [call("AND", day, name)])
    assert found is not None
    assert {key: str(one) for key, one in found.items()} == {"day": "1970-01-01", "name": "x"}
    assert equalities(SCHEMA, [call(">", column("n"), value("n", "1"))]) is None
    assert equalities(SCHEMA, [name, name]) is None
    assert everything([{"value": "true", "type": json.dumps("boolean")}])
    assert not everything([name])


# --- the logic is Spark's ----------------------------------------------------------------------------------------


def _truth(node: dict[str, Any], row: dict[str, Any]) -> bool | None:
    """SQL's three values."""
    name, args = node["call"], node["args"]
    if name in ("AND", "OR"):
        parts = [_truth(one, row) for one in args]
        decides = name == "OR"
        return decides if decides in parts else None if None in parts else not decides
    if name == "NOT":
        inner = _truth(args[0], row)
        return None if inner is None else not inner
    left = row[args[0]["column"][0]]
    if name in ("IS_NULL", "IS_NOT_NULL"):
        return (left is None) == (name == "IS_NULL")
    rights = [_read(args[0]["column"][0], one["value"]) for one in args[1:]]
    if name == "<=>":
        return left is not None and _order(left) == _order(rights[0])
    if left is None:
        return None
    have, want = _order(left), [_order(one) for one in rights]
    compared = {
        "=": lambda: have == want[0],
        "<": lambda: have < want[0],
        ">=": lambda: have >= want[0],
        "<>": lambda: have != want[0],
        "IN": lambda: have in want,
        "STARTS_WITH": lambda: str(left).startswith(rights[0]),
    }
    return bool(compared[name]())


def _read(name: str, text: str) -> Any:
    return {"id": int, "n": int, "x": float, "name": str}[name](text)


def _order(one: Any) -> tuple[int, Any]:
    """NaN equals itself and is above all numbers."""
    return (1, 0) if isinstance(one, float) and one != one else (0, one)


@st.composite
def leaves(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(["id", "n", "x", "name"]))
    texts = {"id": "123", "n": "57", "x": ["0.5", "-1.0", "NaN"], "name": ["ann", "an", "bob"]}
    values = st.sampled_from(list(texts[name])).map(lambda text: value(name, text))
    kind = draw(st.sampled_from(["=", "<", ">=", "<>", "<=>", "IN", "IS_NULL", "IS_NOT_NULL", "STARTS_WITH"]))
    if kind.startswith("IS_"):
        return call(kind, column(name))
    if kind == "STARTS_WITH":
        return call(kind, column("name"), value("name", draw(st.sampled_from(["an", "b", ""]))))
    if kind == "IN":
        return call(kind, column(name), *draw(st.lists(values, min_size=1, max_size=3)))
    return call(kind, column(name), draw(values))


conditions = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.builds(lambda one: call("NOT", one), inner),
        st.builds(lambda name, a, b: call(name, a, b), st.sampled_from(["AND", "OR"]), inner, inner),
    ),
    max_leaves=6,
)


@given(conditions)
@settings(max_examples=100, deadline=None)
def test_a_pushed_condition_keeps_the_rows_that_spark_would_keep(condition: dict[str, Any]) -> None:
    found = pushed(condition)
    assert found.exact == (0,)
    assert found.where is not None
    expected = [_truth(condition, row) is True for row in ROWS.to_pylist()]
    assert found.where.mask(ROWS).to_pylist() == expected
