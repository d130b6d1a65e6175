"""Tables: what is refused, what is filled in, and ids that never come back."""

from __future__ import annotations

import pytest

from coordinator.house import NOW_MS, House, described, path
from strom.coordinator import commands
from strom.coordinator.limits import DecisionLimits
from strom.errors import (
    DatabaseNotFound,
    InvalidConfig,
    InvalidTable,
    LimitExceeded,
    TableExists,
    TableNotFound,
    TooManyBuckets,
)


def test_a_log_table_gets_an_id_a_schema_and_the_defaults() -> None:
    table = House(limits=DecisionLimits(bucket_count_default=3)).table("events", comment="clicks")
    assert (table.table_id, table.path, table.schema.schema_id) == (1, path("fluss.events"), 1)
    assert (table.bucket_count, table.description.comment) == (3, "clicks")
    assert table.description.properties == {"table.replication.factor": "1"}
    assert (table.created_ms, table.modified_ms) == (NOW_MS, NOW_MS)


def test_a_primary_key_table_is_kept_with_its_keys() -> None:
    house = House()
    table = house.table("users", keys=("id", "day"), partition_by=("day",), buckets=2)
    assert table.description.properties["table.kv.format-version"] == "2"
    assert (table.description.bucket_key, table.schema.primary_key) == (("id",), ("id", "day"))
    assert house.catalog.table(path("users")) == table


def test_what_the_client_said_is_kept_over_the_default() -> None:
    table = House().table("users", keys=("id",), buckets=5, properties={"table.kv.format-version": "1"})
    assert table.description.properties["table.kv.format-version"] == "1"
    assert table.bucket_count == 5


def test_the_catalog_has_what_create_returned() -> None:
    house = House()
    table = house.table("events", buckets=4, custom_properties={"team": "x"})
    assert house.catalog.table(path("events")) == table
    assert house.catalog.table_by_id(table.table_id) == table
    assert house.catalog.tables_of("fluss") == ["events"]
    assert house.catalog.find_table(path("other")) is None
    assert house.catalog.table_by_id(99) is None


def test_a_table_that_exists_is_refused_or_ignored() -> None:
    house = House()
    first = house.table("events")
    with pytest.raises(TableExists):
        house.table("events", buckets=9)
    assert house.table("events", buckets=9, ignore_if_exists=True) == first


def test_a_table_needs_its_database() -> None:
    with pytest.raises(DatabaseNotFound):
        House().table("nowhere.events")


def test_every_create_gives_a_new_id_also_after_a_drop_and_a_restart() -> None:
    house = House()
    ids = []
    for _ in range(3):
        ids.append(house.table("events").table_id)
        house.do(commands.drop_table, path("events"))
        house = House(house.store)
    assert ids == [1, 2, 3]


def test_a_dropped_table_is_gone_and_dropping_it_again_is_refused_or_ignored() -> None:
    house = House()
    table = house.table("events")
    assert house.do(commands.drop_table, path("events")) == table
    assert house.catalog.find_table(path("events")) is None
    assert house.catalog.table_by_id(table.table_id) is None
    with pytest.raises(TableNotFound):
        house.do(commands.drop_table, path("events"))
    with pytest.raises(TableNotFound, match="nor its database"):
        house.do(commands.drop_table, path("nowhere.events"))
    assert house.do(commands.drop_table, path("events"), ignore_if_not_exists=True) is None
    assert house.do(commands.drop_table, path("nowhere.events"), ignore_if_not_exists=True) is None


def test_a_missing_table_is_named_with_the_nearest_one() -> None:
    house = House()
    house.table("events")
    with pytest.raises(TableNotFound, match="did you mean 'events'"):
        house.catalog.table(path("event"))


def test_more_buckets_than_allowed_are_refused() -> None:
    house = House(limits=DecisionLimits(bucket_num_max=8))
    assert house.table("a", buckets=8).bucket_count == 8
    with pytest.raises(TooManyBuckets) as raised:
        house.table("b", buckets=9)
    assert raised.value.facts["buckets_max"] == 8
    with pytest.raises(TooManyBuckets):
        house.table("b", buckets=9, partition_by=("day",))


@pytest.mark.parametrize("name", ["fluss.", "fluss.a b", "fluss.__t", "fluss.a.b", "fluss.-t"])
def test_a_table_name_that_could_mean_something_else_is_refused(name: str) -> None:
    with pytest.raises(InvalidTable):
        House().table(name)


@pytest.mark.parametrize(
    ("properties", "hint"),
    [
        ({"table.log.tttl": "1 d"}, "did you mean 'table.log.ttl'"),
        ({"table.log.ttl": "soon"}, "soon"),
        ({"table.replication.factor": "3"}, "keep 1 copy"),
        ({"table.auto-partition.enabled": "true"}, "partitioned"),
        ({"table.statistics.columns": "nothing"}, "is not a column"),
    ],
)
def test_properties_are_checked(properties: dict[str, str], hint: str) -> None:
    with pytest.raises(InvalidConfig, match=hint):
        House().table("events", properties=properties)


def test_a_refused_table_uses_no_id() -> None:
    house = House()
    with pytest.raises(InvalidConfig):
        house.table("a", properties={"table.nothing": "1"})
    assert house.table("b").table_id == 1


def test_a_table_too_large_for_the_metadata_is_refused_whole() -> None:
    house = House()
    with pytest.raises(LimitExceeded):
        house.table("a", custom_properties={f"k{number}": "x" * 60_000 for number in range(20)})
    assert house.catalog.all_tables() == []
    assert house.table("b").table_id == 1


def test_a_description_from_elsewhere_starts_at_schema_one() -> None:
    description = described()
    longer = described().schema.add_column("x", description.schema.column("price").type)
    house = House()
    table = house.do(
        commands.create_table,
        path("a"),
        type(description)(longer),
        now_ms=NOW_MS,
    )
    assert table.schema.schema_id == 1
    assert [schema.schema_id for schema in house.catalog.table(path("a")).schemas] == [1]
