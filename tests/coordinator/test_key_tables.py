"""Primary-key tables: what is pinned when they are made, and numbers that are given out once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.house import NOW_MS, House, described, path
from strom.coordinator import commands, keys
from strom.coordinator.commands import Alteration
from strom.errors import InvalidAlter, InvalidConfig, LimitExceeded, UnknownBucket
from strom.model import properties
from strom.model.data_type import BigInt, Int
from strom.model.schema import Column
from strom.model.table import TableEntry


def numbered(house: House, kind: type[Int] | type[BigInt] = BigInt, name: str = "users") -> TableEntry:
    description = described(keys=("id",))
    schema = description.schema
    column = Column(schema.highest_field_id + 1, "number", kind())
    longer = replace(
        schema, columns=(*schema.columns, column), auto_increment=("number",), highest_field_id=column.id
    )
    return house.do(commands.create_table, path(name), replace(description, schema=longer), now_ms=NOW_MS)


def test_the_rule_that_chooses_buckets_is_pinned_and_hidden_from_peers() -> None:
    house = House()
    table = house.table("users", keys=("id",))
    assert table.description.properties["table.bucket.rule"] == "fluss-rust"
    assert "table.bucket.rule" not in properties.visible_to_peers(table.description.properties)
    assert "table.bucket.rule" not in house.table("events").description.properties


def test_an_engine_that_keeps_no_deletes_says_so() -> None:
    table = House().table("users", keys=("id",), properties={"table.merge-engine": "first_row"})
    assert table.description.properties["table.delete.behavior"] == "ignore"


def test_functions_named_by_properties_become_part_of_the_schema() -> None:
    table = House().table(
        "users", keys=("id",), properties={"table.merge-engine": "aggregation", "fields.price.agg": "sum"}
    )
    assert table.schema.column("price").aggregation == '{"type":"sum"}'


def test_an_index_can_be_added_and_dropped_but_not_bent() -> None:
    house = House()
    house.table("users", keys=("id",))
    alter = lambda **change: house.do(  # noqa: E731
        commands.alter_table, path("users"), Alteration(**change), now_ms=NOW_MS
    )
    alter(set={"table.index.by_price": "price"})
    assert (
        alter(set={"table.index.by_price": "price"}).description.properties["table.index.by_price"] == "price"
    )
    with pytest.raises(InvalidAlter, match="drop the index"):
        alter(set={"table.index.by_price": "day"})
    with pytest.raises(InvalidConfig, match="is not a column"):
        alter(set={"table.index.by_z": "z"})
    assert "table.index.by_price" not in alter(unset=("table.index.by_price",)).description.properties


def test_numbers_are_given_out_once_also_over_a_restart() -> None:
    house = House()
    table = numbered(house)
    assert house.do(commands.allocate_numbers, table.table_id, 10) == range(1, 11)
    house = House(house.store)
    assert house.do(commands.allocate_numbers, table.table_id, 5) == range(11, 16)
    other = numbered(house, name="others")
    assert house.do(commands.allocate_numbers, other.table_id, 1) == range(1, 2)


def test_a_dropped_table_leaves_no_counter_behind() -> None:
    house = House()
    table = numbered(house)
    house.do(commands.allocate_numbers, table.table_id, 10)
    house.do(commands.drop_table, path("users"))
    assert keys.number_counter(table.table_id) not in house.store.read().entries
    with pytest.raises(UnknownBucket):
        house.do(commands.allocate_numbers, table.table_id, 1)


def test_the_numbers_of_an_int_column_end() -> None:
    house = House()
    table = numbered(house, Int)
    assert house.do(commands.allocate_numbers, table.table_id, 2**40) == range(1, 2**31)
    with pytest.raises(LimitExceeded, match="used up"):
        house.do(commands.allocate_numbers, table.table_id, 1)
