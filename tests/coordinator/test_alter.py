"""Altering tables: one new schema per alteration, only what may change."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from coordinator.house import NOW_MS, House, path
from strom.coordinator import commands
from strom.coordinator.alter import Alteration, NewColumn
from strom.errors import InvalidAlter, InvalidConfig, InvalidTable, TableNotFound
from strom.model import types
from strom.model.schema import SCHEMA_ID_MAX
from strom.model.table import TableEntry


def alter(house: House, alteration: Alteration, name: str = "events", now_ms: int = NOW_MS + 1) -> TableEntry:
    altered: TableEntry = house.do(commands.alter_table, path(name), alteration, now_ms=now_ms)
    return altered


def adding(*names: str, type_text: str = "int") -> Alteration:
    return Alteration(
        add_columns=tuple(NewColumn(name, types.parse(type_text), f"the {name}") for name in names)
    )


def test_columns_are_added_at_the_end_under_one_new_schema() -> None:
    house = House()
    before = house.table("events")
    after = alter(house, adding("x", "y"))
    assert after.schema.names == (*before.schema.names, "x", "y")
    assert (after.table_id, after.schema.schema_id) == (before.table_id, 2)
    assert after.schema.column("x").comment == "the x"
    assert [schema.schema_id for schema in after.schemas] == [1, 2]
    assert after.schema_by_id(1) == before.schema
    assert (after.created_ms, after.modified_ms) == (NOW_MS, NOW_MS + 1)
    assert house.catalog.table(path("events")) == after


def test_every_schema_is_kept_over_a_restart() -> None:
    house = House()
    house.table("events")
    for number in range(4):
        after = alter(house, adding(f"c{number}", type_text="row<a int, b string>"))
    again = House(house.store).catalog.table(path("events"))
    assert again == after
    assert [len(schema.columns) for schema in again.schemas] == [4, 5, 6, 7, 8]


def test_columns_keep_their_ids_and_no_id_is_given_twice() -> None:
    house = House()
    before = house.table("events")
    after = alter(house, adding("x"))
    assert [after.schema.column(name).id for name in before.schema.names] == [
        c.id for c in before.schema.columns
    ]
    assert after.schema.column("x").id == before.schema.highest_field_id + 1


@pytest.mark.parametrize(
    ("alteration", "error"),
    [
        (adding("price"), InvalidAlter),
        (adding("x", "x"), InvalidAlter),
        (adding("x", type_text="int not null"), InvalidAlter),
        (adding("__offset"), InvalidTable),
        (Alteration(set={"table.log.format": "ARROW"}), InvalidConfig),
        (Alteration(unset=("table.replication.factor",)), InvalidConfig),
        (Alteration(set={"table.log.ttll": "1 d"}), InvalidConfig),
        (Alteration(set={"table.log.ttl": "late"}), InvalidConfig),
        (Alteration(set={"table.auto-partition.enabled": "true"}), InvalidConfig),
        (Alteration(set={"table.log.ttl": "1 d"}, unset=("table.log.ttl",)), InvalidAlter),
    ],
)
def test_what_cannot_change_is_refused_whole(alteration: Alteration, error: type[Exception]) -> None:
    house = House()
    before = house.table("events")
    with pytest.raises(error):
        alter(house, replace(alteration, add_columns=(*adding("ok").add_columns, *alteration.add_columns)))
    assert house.catalog.table(path("events")) == before


def test_properties_are_set_and_unset() -> None:
    house = House()
    house.table("events", properties={"table.log.ttl": "1 d"}, custom_properties={"team": "a", "old": "1"})
    after = alter(
        house, Alteration(set={"table.log.ttl": "2 d", "team": "b", "new": "2"}, unset=("old", "never"))
    )
    assert after.description.properties["table.log.ttl"] == "2 d"
    assert after.description.custom_properties == {"team": "b", "new": "2"}
    after = alter(house, Alteration(unset=("table.log.ttl",)))
    assert "table.log.ttl" not in after.description.properties
    assert (after.schema.schema_id, len(after.schemas)) == (1, 1)
    assert house.catalog.table(path("events")) == after


def test_a_property_stays_among_those_it_was_given_with() -> None:
    house = House()
    house.table("events", properties={"owner": "ann"}, custom_properties={"team": "a"})
    after = alter(house, Alteration(set={"owner": "bob", "team": "b"}))
    assert after.description.properties["owner"] == "bob"
    assert after.description.custom_properties == {"team": "b"}


def test_an_alteration_that_changes_nothing_commits_nothing() -> None:
    house = House()
    before = house.table("events", properties={"table.log.ttl": "1 d"})
    version = house.catalog.version
    assert alter(house, Alteration()) == before
    assert alter(house, Alteration(set={"table.log.ttl": "1 d"}, unset=("never",))) == before
    assert house.catalog.version == version


def test_a_clock_set_back_does_not_make_a_table_older() -> None:
    house = House()
    house.table("events")
    assert alter(house, adding("x"), now_ms=5).modified_ms == NOW_MS


def test_a_missing_table_cannot_be_altered() -> None:
    with pytest.raises(TableNotFound):
        alter(House(), adding("x"))


def test_the_schema_id_must_fit_into_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SCHEMA_ID_MAX == 2**15 - 1
    monkeypatch.setattr("strom.coordinator.alter.SCHEMA_ID_MAX", 2)
    house = House()
    house.table("events")
    before = alter(house, adding("x"))
    with pytest.raises(InvalidAlter, match="at most 2 schemas"):
        alter(house, adding("y"))
    assert house.catalog.table(path("events")) == before


def test_the_schemas_of_a_dropped_table_go_with_it() -> None:
    house = House()
    table = house.table("events")
    for name in ("x", "y"):
        alter(house, adding(name))
    assert len(house.catalog.older_schema_ids(table.table_id)) == 2
    house.do(commands.drop_table, path("events"))
    assert house.catalog.older_schema_ids(table.table_id) == []
    assert House(house.store).catalog.older_schema_ids(table.table_id) == []


def test_an_alteration_is_read_from_json() -> None:
    column = {"name": "x", "data_type": {"type": "INTEGER"}, "comment": "the x"}
    text = json.dumps({"add_columns": [column], "set": {"a": "b"}, "unset": ["c"]})
    assert Alteration.from_json(text.encode()) == Alteration(adding("x").add_columns, {"a": "b"}, ("c",))
    assert Alteration.from_json(b"{}") == Alteration()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b'{"drop_columns": []}',
        b'{"set": {"a": 1}}',
        b'{"unset": "a"}',
        b'{"add_columns": [{}]}',
    ],
)
def test_an_alteration_that_cannot_be_read_is_refused(text: bytes) -> None:
    with pytest.raises((InvalidAlter, InvalidTable)):
        Alteration.from_json(text)
