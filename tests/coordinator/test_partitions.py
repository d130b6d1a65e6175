"""Partitions, by hand and by time."""

from __future__ import annotations

import pytest

from coordinator.house import NOW_MS, House, path
from strom.coordinator import commands
from strom.coordinator.limits import DecisionLimits
from strom.coordinator.partitions import AutoPartitioned, list_partitions
from strom.errors import (
    InvalidPartition,
    PartitionExists,
    PartitionNotFound,
    TableNotFound,
    TableNotPartitioned,
    TooManyPartitions,
)

DAY_MS = 86_400_000
BY_DAY = {"table.auto-partition.enabled": "true", "table.auto-partition.time-unit": "DAY"}


def names(house: House, table: str = "events") -> list[str]:
    return [partition.name for partition in list_partitions(house.catalog, path(table))]


def test_a_partition_is_named_by_its_values_in_key_order() -> None:
    house = House()
    table = house.table("events", partition_by=("day", "region"))
    partition = house.partition("events", {"region": "EMEA", "day": "2024-01-15"})
    assert (partition.name, partition.values) == ("2024-01-15$EMEA", ("2024-01-15", "EMEA"))
    assert (partition.table_id, partition.created_ms) == (table.table_id, NOW_MS)
    assert house.catalog.partition(table, "2024-01-15$EMEA") == partition
    assert house.catalog.partition_by_id(partition.partition_id) == partition
    assert house.catalog.partition_by_id(99) is None


def test_a_partition_that_exists_is_refused_or_ignored() -> None:
    house = House()
    house.table("events", partition_by=("day",))
    first = house.partition("events", {"day": "monday"})
    with pytest.raises(PartitionExists):
        house.partition("events", {"day": "monday"})
    assert house.partition("events", {"day": "monday"}, ignore_if_exists=True) == first


def test_a_dropped_partition_is_gone_and_dropping_it_again_is_refused_or_ignored() -> None:
    house = House()
    house.table("events", partition_by=("day",))
    first = house.partition("events", {"day": "monday"})
    assert house.do(commands.drop_partition, path("events"), {"day": "monday"}) == first
    assert names(house) == []
    with pytest.raises(PartitionNotFound):
        house.do(commands.drop_partition, path("events"), {"day": "monday"})
    assert (
        house.do(commands.drop_partition, path("events"), {"day": "monday"}, ignore_if_not_exists=True)
        is None
    )


def test_partition_ids_are_new_every_time_and_among_all_tables() -> None:
    house = House()
    house.table("a", partition_by=("day",))
    house.table("b", partition_by=("day",))
    ids = []
    for _ in range(2):
        for table in "ab":
            ids.append(house.partition(table, {"day": "monday"}).partition_id)
            house.do(commands.drop_partition, path(table), {"day": "monday"})
        house = House(house.store)
    assert ids == [1, 2, 3, 4]


def test_a_table_without_partition_keys_has_no_partitions() -> None:
    house = House()
    house.table("events")
    for command in (
        lambda: house.partition("events", {"day": "monday"}),
        lambda: house.do(commands.drop_partition, path("events"), {"day": "x"}, ignore_if_not_exists=True),
        lambda: list_partitions(house.catalog, path("events")),
    ):
        with pytest.raises(TableNotPartitioned):
            command()


def test_a_missing_table_has_no_partitions() -> None:
    with pytest.raises(TableNotFound):
        House().partition("events", {"day": "monday"}, ignore_if_exists=True)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"day": "x"},
        {"day": "x", "region": "y", "id": "1"},
        {"day": "x", "regoin": "y"},
        {"day": "", "region": "y"},
    ]
    + [{"day": value, "region": "y"} for value in ("a/b", "..", "a$b", "__x", "x" * 201, "naïve", "a b")],
)
def test_values_that_cannot_name_a_partition_are_refused(values: dict[str, str]) -> None:
    house = House()
    house.table("events", partition_by=("day", "region"))
    with pytest.raises(InvalidPartition):
        house.partition("events", values)
    assert names(house) == []


def test_a_negative_number_names_a_partition() -> None:
    house = House()
    house.table("events", partition_by=("id",))
    assert house.partition("events", {"id": "-5"}).name == "-5"


@pytest.mark.parametrize("text", ["monday", "007", "1_5", "99999999999999999999"])
def test_a_text_that_is_no_value_of_its_key_names_no_partition(text: str) -> None:
    house = House()
    house.table("events", partition_by=("id",))
    with pytest.raises(InvalidPartition, match="id is BIGINT"):
        house.partition("events", {"id": text})
    assert names(house) == []


def test_partitions_are_listed_by_some_of_their_values() -> None:
    house = House()
    house.table("events", partition_by=("day", "region"))
    for day in ("tuesday", "monday"):
        for region in ("west", "east"):
            house.partition("events", {"day": day, "region": region})
    assert names(house) == ["monday$east", "monday$west", "tuesday$east", "tuesday$west"]
    east = list_partitions(house.catalog, path("events"), {"region": "east"})
    assert [partition.name for partition in east] == ["monday$east", "tuesday$east"]
    assert list_partitions(house.catalog, path("events"), {"day": "sunday"}) == []
    with pytest.raises(InvalidPartition):
        list_partitions(house.catalog, path("events"), {"price": "1"})


def test_more_partitions_than_allowed_are_refused_until_one_is_dropped() -> None:
    house = House(limits=DecisionLimits(partition_num_max=3))
    house.table("events", partition_by=("day",))
    for day in "abc":
        house.partition("events", {"day": day})
    with pytest.raises(TooManyPartitions):
        house.partition("events", {"day": "d"})
    assert house.partition("events", {"day": "a"}, ignore_if_exists=True).name == "a"
    house.do(commands.drop_partition, path("events"), {"day": "a"})
    house.partition("events", {"day": "d"})
    assert names(house) == ["b", "c", "d"]


def test_dropping_a_table_drops_its_partitions() -> None:
    house = House()
    house.table("events", partition_by=("day",))
    partition = house.partition("events", {"day": "monday"})
    house.do(commands.drop_table, path("events"))
    assert house.catalog.partition_by_id(partition.partition_id) is None
    assert not house.store.read("partitions/").entries


# --- by time -------------------------------------------------------------------------------------------------


def test_time_creates_partitions_ahead_and_drops_those_behind() -> None:
    house = House()
    table = house.table(
        "events", partition_by=("day",), properties={**BY_DAY, "table.auto-partition.num-retention": "1"}
    )
    done = house.do(commands.auto_partition, table.table_id, now_ms=NOW_MS)
    assert [partition.name for partition in done.created] == ["20231114", "20231115"]
    assert done.dropped == ()
    done = house.do(commands.auto_partition, table.table_id, now_ms=NOW_MS + 2 * DAY_MS)
    assert [partition.name for partition in done.created] == ["20231116", "20231117"]
    assert [partition.name for partition in done.dropped] == ["20231114"]
    assert names(house) == ["20231115", "20231116", "20231117"]


def test_looking_twice_at_the_same_time_changes_nothing() -> None:
    house = House()
    table = house.table("events", partition_by=("day",), properties=BY_DAY)
    house.do(commands.auto_partition, table.table_id, now_ms=NOW_MS)
    version = house.catalog.version
    assert house.do(commands.auto_partition, table.table_id, now_ms=NOW_MS) == AutoPartitioned()
    assert house.catalog.version == version


def test_a_table_that_did_not_ask_for_it_is_left_alone() -> None:
    house = House()
    table = house.table("events", partition_by=("day",))
    plain = house.table("plain")
    house.partition("events", {"day": "19990101"})
    for table_id in (table.table_id, plain.table_id, 99):
        assert house.do(commands.auto_partition, table_id, now_ms=NOW_MS) == AutoPartitioned()
    assert names(house) == ["19990101"]


def test_partitions_ahead_keep_to_the_limit_the_earliest_first() -> None:
    house = House(limits=DecisionLimits(partition_num_max=3))
    ahead = {**BY_DAY, "table.auto-partition.num-precreate": "9"}
    table = house.table("events", partition_by=("day",), properties=ahead)
    house.do(commands.auto_partition, table.table_id, now_ms=NOW_MS)
    assert names(house) == ["20231114", "20231115", "20231116"]
    assert house.do(commands.auto_partition, table.table_id, now_ms=NOW_MS) == AutoPartitioned()


def test_partitions_that_go_make_room_for_those_that_come_in_the_same_moment() -> None:
    house = House(limits=DecisionLimits(partition_num_max=2))
    table = house.table("events", partition_by=("day",), properties=BY_DAY)
    house.do(commands.auto_partition, table.table_id, now_ms=NOW_MS)
    assert names(house) == ["20231114", "20231115"]
    done = house.do(commands.auto_partition, table.table_id, now_ms=NOW_MS + 30 * DAY_MS)
    assert len(done.dropped) == len(done.created) == 2
    assert names(house) == ["20231214", "20231215"]


def test_several_keys_are_dropped_by_time_but_never_made_ahead() -> None:
    house = House()
    keyed = {**BY_DAY, "table.auto-partition.key": "day", "table.auto-partition.num-precreate": "0"}
    table = house.table("events", partition_by=("region", "day"), properties=keyed)
    house.partition("events", {"region": "west", "day": "20231114"})
    house.partition("events", {"region": "east", "day": "20231120"})
    done = house.do(commands.auto_partition, table.table_id, now_ms=NOW_MS + 10 * DAY_MS)
    assert (done.created, [partition.name for partition in done.dropped]) == ((), ["west$20231114"])
    assert names(house) == ["east$20231120"]


def test_a_partition_that_would_be_dropped_at_once_is_refused() -> None:
    house = House()
    house.table("events", partition_by=("day",), properties=BY_DAY)
    with pytest.raises(InvalidPartition, match="retention"):
        house.partition("events", {"day": "20200101"})
    house.partition("events", {"day": "20231108"})
    assert names(house) == ["20231108"]
