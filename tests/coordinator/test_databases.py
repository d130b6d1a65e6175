"""Databases: create, drop, and the one that is always there."""

from __future__ import annotations

import pytest

from coordinator.house import NOW_MS, House
from strom.coordinator import commands
from strom.errors import DatabaseExists, DatabaseNotEmpty, DatabaseNotFound, InvalidDatabase, InvalidTable


def test_fluss_is_there_from_the_start_and_stays() -> None:
    house = House()
    assert house.catalog.databases() == ["fluss"]
    for cascade in (False, True):
        with pytest.raises(InvalidDatabase, match="always exists"):
            house.do(commands.drop_database, "fluss", cascade=cascade, ignore_if_not_exists=True)
    assert house.catalog.databases() == ["fluss"]


def test_starting_again_changes_nothing() -> None:
    house = House()
    version = house.catalog.version
    house.do(commands.bootstrap, now_ms=NOW_MS + 5)
    assert house.catalog.version == version


def test_a_database_is_described_as_it_was_created() -> None:
    house = House()
    house.database("sales", comment="of the shops", custom_properties={"owner": "ann"})
    found = house.catalog.database("sales")
    assert (found.comment, found.custom_properties) == ("of the shops", {"owner": "ann"})
    assert (found.created_ms, found.modified_ms) == (NOW_MS, NOW_MS)
    assert house.catalog.databases() == ["fluss", "sales"]


def test_a_database_that_exists_is_refused_or_ignored() -> None:
    house = House()
    house.database("sales", comment="first")
    with pytest.raises(DatabaseExists):
        house.database("sales")
    house.database("sales", comment="second", ignore_if_exists=True)
    assert house.catalog.database("sales").comment == "first"


@pytest.mark.parametrize("name", ["", "a b", "../x", "a/b", "__own", "-a", "x" * 201, "naïve"])
def test_a_name_that_could_mean_something_else_is_refused(name: str) -> None:
    with pytest.raises(InvalidDatabase):
        House().database(name)


def test_a_comment_without_end_is_refused() -> None:
    with pytest.raises(InvalidTable):
        House().database("a", comment="x" * 1_000_000)


def test_a_database_that_is_missing_is_named_in_the_error() -> None:
    house = House()
    house.database("sales")
    with pytest.raises(DatabaseNotFound, match="did you mean 'sales'"):
        house.catalog.database("sale")
    with pytest.raises(DatabaseNotFound):
        house.do(commands.drop_database, "nowhere")
    with pytest.raises(DatabaseNotFound):
        house.catalog.tables_of("nowhere")
    house.do(commands.drop_database, "nowhere", ignore_if_not_exists=True)


def test_a_database_with_tables_is_dropped_only_with_cascade() -> None:
    house = House()
    house.database("sales")
    table = house.table("sales.a", partition_by=("day",))
    house.table("sales.b")
    house.partition("sales.a", {"day": "monday"})
    with pytest.raises(DatabaseNotEmpty, match="2 table"):
        house.do(commands.drop_database, "sales")
    house.do(commands.drop_database, "sales", cascade=True)
    assert house.catalog.databases() == ["fluss"]
    assert house.catalog.all_tables() == []
    assert house.catalog.partitions_of(table.table_id) == []
    assert set(house.store.read().entries) == {"databases/fluss", "counters/table", "counters/partition"}


def test_an_empty_database_is_dropped() -> None:
    house = House()
    house.database("sales")
    house.do(commands.drop_database, "sales")
    assert house.catalog.databases() == ["fluss"]
