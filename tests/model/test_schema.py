"""Schemas: permanent ids, distinct names, columns added later."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings

from strategies import schemas
from strom.errors import InvalidAlter, InvalidProjection, InvalidTable
from strom.model import types as t
from strom.model.schema import COLUMNS_MAX, Column, Schema

NESTED = pa.struct([("x", pa.int8()), ("y", pa.list_(pa.struct([("z", pa.int8())])))])


def schema_of(*columns: tuple[str, str], primary_key: tuple[str, ...] = ()) -> Schema:
    fields = [
        pa.field(name, kind.to_arrow(), kind.nullable) for name, kind in ((n, t.parse(k)) for n, k in columns)
    ]
    return Schema.from_arrow(pa.schema(fields), primary_key)


@settings(max_examples=80, deadline=None)
@given(schemas())
def test_json_reads_back_to_the_same_schema(schema: Schema) -> None:
    assert Schema.from_json(schema.to_json(), schema.schema_id) == schema


@settings(max_examples=80, deadline=None)
@given(schemas())
def test_ids_differ_and_the_highest_is_known(schema: Schema) -> None:
    ids = [column.id for column in schema.columns]
    ids += [field.id for column in schema.columns for field in t.row_fields(column.type)]
    assert sorted(ids) == list(range(len(ids)))
    assert schema.highest_field_id == len(ids) - 1


def test_a_row_has_its_id_before_its_fields() -> None:
    schema = Schema.from_arrow(pa.schema([("a", pa.int8()), ("r", NESTED), ("b", pa.int8())]))
    assert [column.id for column in schema.columns] == [0, 1, 5]
    assert [field.id for field in t.row_fields(schema.column("r").type)] == [2, 3, 4]


def test_json_without_ids_gets_them_in_order() -> None:
    json = schema_of(("a", "INT"), ("r", "ROW<x INT>"), ("b", "INT")).to_json()
    stripped = {"columns": [{k: v for k, v in column.items() if k != "id"} for column in json["columns"]]}
    del stripped["columns"][1]["data_type"]["fields"][0]["field_id"]
    schema = Schema.from_json(stripped)
    assert [column.id for column in schema.columns] == [0, 1, 3]
    assert schema.highest_field_id == 3


def test_json_with_some_ids_is_refused() -> None:
    json = schema_of(("a", "INT"), ("b", "INT")).to_json()
    del json["columns"][1]["id"]
    with pytest.raises(InvalidTable, match="every column"):
        Schema.from_json(json)


def test_primary_key_columns_become_not_null() -> None:
    schema = Schema.from_arrow(pa.schema([("a", pa.int8()), ("b", pa.int8())]), primary_key=["a"])
    assert not schema.column("a").type.nullable
    json = schema.to_json()
    del json["columns"][0]["data_type"]["nullable"]
    assert Schema.from_json(json) == schema


@pytest.mark.parametrize(
    ("columns", "primary_key", "complaint"),
    [
        ([], (), "at least one column"),
        ([Column(0, "a", t.Int()), Column(1, "a", t.Int())], (), "occur twice"),
        ([Column(0, "a", t.Int()), Column(0, "b", t.Int())], (), "same id"),
        ([Column(0, "__offset", t.Int())], (), "cannot name a column"),
        ([Column(0, "", t.Int())], (), "it is empty"),
        ([Column(0, "a\nb", t.Int())], (), "cannot be printed"),
        ([Column(0, "a", t.Int())], ("a",), "must be NOT NULL"),
        ([Column(0, "a", t.Array(t.Int(), nullable=False))], ("a",), "primary key"),
        ([Column(0, "price", t.Int())], ("prise",), "did you mean 'price'"),
        ([Column(0, "a", t.Int(nullable=False))], ("a", "a"), "twice"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(
    columns: list[Column], primary_key: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(InvalidTable, match=complaint):
        Schema(1, tuple(columns), primary_key)


def test_a_schema_has_a_bounded_number_of_columns() -> None:
    with pytest.raises(InvalidTable, match="at most"):
        Schema(1, tuple(Column(i, f"c{i}", t.Int()) for i in range(COLUMNS_MAX + 1)))


def test_an_id_above_the_highest_is_refused() -> None:
    json = schema_of(("a", "INT"), ("b", "INT")).to_json()
    json["highest_field_id"] = 0
    with pytest.raises(InvalidTable, match="highest_field_id"):
        Schema.from_json(json)


def test_an_auto_increment_column_is_a_number_beside_the_key() -> None:
    columns = (Column(0, "a", t.Int(nullable=False)), Column(1, "b", t.BigInt()), Column(2, "s", t.String()))
    assert Schema(1, columns, ("a",), ("b",)).auto_increment == ("b",)
    for primary_key, auto_increment in [(("a",), ("a",)), (("a",), ("s",)), ((), ("b",)), (("a",), ("x",))]:
        with pytest.raises(InvalidTable):
            Schema(1, columns, primary_key, auto_increment)


def test_an_unknown_column_is_refused_with_the_nearest_name() -> None:
    schema = schema_of(("price", "INT"), ("name", "STRING"))
    with pytest.raises(InvalidProjection, match="did you mean 'price'"):
        schema.position("prize")
    with pytest.raises(InvalidProjection):
        schema.projected([])
    with pytest.raises(InvalidProjection, match="twice"):
        schema.projected(["name", "name"])
    assert schema.projected(["name", "price"]) == (1, 0)
    assert schema.find("x") is None
    assert schema.by_id(7) is None


def test_an_added_column_gets_the_next_ids_and_a_new_schema_id() -> None:
    schema = schema_of(("a", "INT"), ("r", "ROW<x INT, y INT>"))
    later = schema.add_column("s", t.parse("ROW<z INT>"), "why").add_column("b", t.Int())
    assert [column.id for column in later.columns] == [0, 1, 4, 6]
    assert [column.comment for column in later.columns] == [None, None, "why", None]
    assert later.schema_id == 3
    assert later.highest_field_id == 6


def test_an_added_column_is_nullable_and_new() -> None:
    schema = schema_of(("a", "INT"))
    with pytest.raises(InvalidAlter, match="nullable"):
        schema.add_column("b", t.Int(nullable=False))
    with pytest.raises(InvalidAlter, match="already"):
        schema.add_column("a", t.Int())
    with pytest.raises(InvalidTable):
        schema.add_column("_change_type", t.Int())


def test_an_aggregation_of_the_peer_is_kept_as_it_came() -> None:
    json = schema_of(("a", "INT"), ("b", "INT")).to_json()
    json["columns"][1]["agg_function"] = {"type": "listagg", "parameters": {"delimiter": "ä"}}
    assert Schema.from_json(json).to_json() == json
    json["columns"][1]["agg_function"] = {"type": "\ud800"}
    with pytest.raises(InvalidTable, match="surrogate"):
        Schema.from_json(json)
