"""Deciding and committing while others do the same."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from coordinator.house import NOW_MS, House, path
from strom.coordinator import commands, keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.coordinator import ATTEMPTS_MAX, Coordinator
from strom.coordinator.limits import DecisionLimits
from strom.coordinator.plan import UpdatePlan
from strom.errors import (
    Conflict,
    DatabaseNotFound,
    MetadataCorrupt,
    StromError,
    TableNotFound,
    TooManyPartitions,
)
from strom.metadata.changes import Absent, Put, Requirement, Update
from strom.metadata.embedded import EmbeddedStore
from strom.metadata.memory import MemoryStore
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_record import LakeReport
from strom.runtime.files import LocalFiles


class Interrupted(MemoryStore):
    """A store where somebody else is a moment faster, once."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Callable[[House], object] | None = None

    def commit(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> int:
        act, self.first = self.first, None
        if act is not None:
            act(House(self))
        return super().commit(requirements, updates)


def interrupted(house: House, act: Callable[[House], object]) -> House:
    """The same house, whose next commit comes after ``act`` of somebody else."""
    assert isinstance(house.store, Interrupted)
    house.store.first = act
    return house


def test_a_table_created_meanwhile_keeps_its_id_and_ours_gets_the_next() -> None:
    house = interrupted(House(Interrupted()), lambda other: other.table("theirs"))
    assert house.table("ours").table_id == 2
    assert house.catalog.table(path("theirs")).table_id == 1


def test_a_table_of_the_same_name_created_meanwhile_is_not_overwritten() -> None:
    house = interrupted(House(Interrupted()), lambda other: other.table("events", buckets=7))
    assert house.table("events", buckets=2, ignore_if_exists=True).bucket_count == 7


def test_a_table_does_not_outlive_a_database_dropped_meanwhile() -> None:
    house = House(Interrupted())
    house.database("sales")
    interrupted(house, lambda other: other.do(commands.drop_database, "sales", cascade=True))
    with pytest.raises(DatabaseNotFound):
        house.table("sales.events")
    assert not house.store.read("names/").entries


def test_a_dropped_database_leaves_no_table_that_came_meanwhile() -> None:
    house = House(Interrupted())
    house.database("sales")
    interrupted(house, lambda other: other.table("sales.late"))
    house.do(commands.drop_database, "sales", cascade=True)
    assert house.catalog.all_tables() == []


def test_two_alterations_at_once_both_happen() -> None:
    def setting(name: str) -> commands.Alteration:
        return commands.Alteration(set={name: "1"})

    house = House(Interrupted())
    house.table("events")
    interrupted(
        house, lambda other: other.do(commands.alter_table, path("events"), setting("a"), now_ms=NOW_MS)
    )
    house.do(commands.alter_table, path("events"), setting("b"), now_ms=NOW_MS)
    assert house.catalog.table(path("events")).description.custom_properties == {"a": "1", "b": "1"}


def test_a_dropped_table_leaves_no_partition_that_came_meanwhile() -> None:
    house = House(Interrupted())
    house.table("events", partition_by=("day",))
    interrupted(house, lambda other: other.partition("events", {"day": "late"}))
    house.do(commands.drop_table, path("events"))
    assert not house.store.read("partitions/").entries


def test_a_partition_does_not_outlive_a_table_dropped_meanwhile() -> None:
    house = House(Interrupted())
    house.table("events", partition_by=("day",))
    interrupted(house, lambda other: other.do(commands.drop_table, path("events")))
    with pytest.raises(TableNotFound):
        house.partition("events", {"day": "late"})
    assert not house.store.read("partitions/").entries


BY_DAY = {"table.auto-partition.enabled": "true", "table.auto-partition.time-unit": "DAY"}
REPORT = LakeReport(1, {LakeKey(None, 0): Tiered(5, 1)})
LATE: dict[str, tuple[dict[str, Any], Callable[[House, int], object]]] = {
    "altered": (
        {},
        lambda house, _: house.do(
            commands.alter_table, path("t"), commands.Alteration(set={"a": "1"}), now_ms=NOW_MS
        ),
    ),
    "led anew": ({}, lambda house, _: house.do(commands.reassign_leaders, [0, 1])),
    "partitions led anew": (
        {"partition_by": ("day",)},
        lambda house, _: house.do(commands.reassign_leaders, [1]),
    ),
    "a floor": ({}, lambda house, table_id: house.do(commands.raise_floor, table_id, 7)),
    "numbers": (
        {"keys": ("id",), "auto_increment": "number"},
        lambda house, table_id: house.do(commands.allocate_numbers, table_id, 10),
    ),
    "a lake": (
        {"properties": {"table.datalake.enabled": "true"}},
        lambda house, table_id: house.do(
            commands.store_lake, table_id, REPORT, round=1, fresh_ms=NOW_MS, now_ms=NOW_MS
        ),
    ),
    "partitions by time": (
        {"partition_by": ("day",), "properties": BY_DAY},
        lambda house, table_id: house.do(commands.auto_partition, table_id, now_ms=NOW_MS),
    ),
}


@pytest.mark.parametrize("what", LATE)
def test_nothing_is_kept_of_a_table_that_was_dropped_meanwhile(what: str) -> None:
    described, act = LATE[what]
    house = House(Interrupted())
    house.servers(0)
    table_id = house.table("t", **described).table_id
    if "partition_by" in described:
        house.partition("t", {"day": "1"})
    interrupted(house, lambda other: other.do(commands.drop_table, path("t")))
    try:
        act(house, table_id)
    except StromError:
        pass  # it may say so
    kinds = ("names", "tables", "schemas", "partitions", "counters/numbers", "floors", "lake")
    left = [key for key in house.store.read().entries if key.startswith(tuple(f"{kind}/" for kind in kinds))]
    assert left == []
    assert Coordinator(house.store).catalog.all_tables() == []


def test_the_limit_of_partitions_holds_against_others() -> None:
    house = House(Interrupted(), limits=DecisionLimits(partition_num_max=1))
    house.table("events", partition_by=("day",))
    interrupted(house, lambda other: other.partition("events", {"day": "theirs"}))
    with pytest.raises(TooManyPartitions):
        house.partition("events", {"day": "ours"})


def test_a_command_that_conflicts_for_ever_ends() -> None:
    house = House()
    calls = []

    def hopeless(catalog: Catalog) -> UpdatePlan[None]:
        calls.append(catalog.version)
        return UpdatePlan(None, [Absent("databases/fluss")], [Put("x", b"")])

    with pytest.raises(Conflict, match="try again"):
        house.do(hopeless)
    assert len(calls) == ATTEMPTS_MAX


def test_writer_ids_are_given_out_once() -> None:
    house = House()
    other = House(house.store)
    blocks = [who.do(commands.allocate_writer_ids, 10) for who in (house, other, house, other)]
    assert [list(block) for block in blocks] == [list(range(start, start + 10)) for start in (1, 11, 21, 31)]


def test_writer_ids_given_out_meanwhile_are_not_given_out_again() -> None:
    house = interrupted(House(Interrupted()), lambda other: other.do(commands.allocate_writer_ids, 10))
    assert list(house.do(commands.allocate_writer_ids, 2)) == [11, 12]


def test_an_older_catalog_stays_as_it_was() -> None:
    house = House()
    house.table("events", partition_by=("day",))
    house.partition("events", {"day": "a"})
    before = house.catalog
    house.partition("events", {"day": "b"})
    house.do(commands.drop_partition, path("events"), {"day": "a"})
    house.do(commands.drop_table, path("events"))
    house.do(commands.drop_database, "nowhere", ignore_if_not_exists=True)
    assert [partition.name for partition in before.partitions_of(1)] == ["a"]
    assert before.table(path("events")).table_id == 1
    assert house.catalog.partitions_of(1) == []


def test_who_was_away_for_too_long_sees_what_came_what_went_and_what_changed() -> None:
    house = House()
    house.servers(0)
    for name in ("altered", "dropped", "same"):
        house.table(name)
    house.table("days", partition_by=("day",))
    house.partition("days", {"day": "gone"})
    before = house.catalog
    change = commands.Alteration(set={"a": "1"}, unset=())
    house.do(commands.alter_table, path("altered"), change, now_ms=NOW_MS)
    house.do(commands.drop_table, path("dropped"))
    house.table("new")
    house.do(commands.drop_partition, path("days"), {"day": "gone"})
    house.partition("days", {"day": "new"})
    snapshot = house.store.read()
    found, touched = before.advanced(before.delta_to(snapshot))
    whole = Catalog.of(snapshot, DecisionLimits())
    assert found.version == whole.version
    assert found.all_tables() == whole.all_tables() == house.catalog.all_tables()
    assert found.table(path("altered")).description.custom_properties == {"a": "1"}
    assert [one.name for one in found.partitions_of(found.table(path("days")).table_id)] == ["new"]
    ids = {name: before.table(path(name)).table_id for name in ("altered", "dropped")}
    assert touched.tables == {*ids.values(), found.table(path("new")).table_id}


def test_the_catalog_never_goes_back_when_threads_race() -> None:
    house = House()
    house.table("events", partition_by=("day",))
    seen: list[int] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            house.coordinator.refresh()
            seen.append(house.coordinator.catalog.version)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(100):
        house.partition("events", {"day": f"d{number}"})
        assert house.coordinator.catalog.find_partition(1, f"d{number}") is not None
    done.set()
    for thread in threads:
        thread.join()
    assert house.coordinator.catalog.version == house.store.read().version


def test_a_catalog_is_the_same_built_at_once_or_step_by_step() -> None:
    house = House()
    house.servers(1, 2)
    house.table("a", buckets=2)
    house.table("b", partition_by=("day",))
    house.partition("b", {"day": "x"})
    house.do(commands.alter_table, path("a"), commands.Alteration(set={"k": "v"}), now_ms=NOW_MS)
    house.do(commands.drop_table, path("a"))
    grown, fresh = house.catalog, Coordinator(house.store).catalog
    for attribute in (
        "_databases",
        "_ids",
        "_tables",
        "_schemas",
        "_partitions",
        "_partitions_of",
        "_servers",
    ):
        assert getattr(grown, attribute) == getattr(fresh, attribute)
    assert grown._counters == fresh._counters


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("databases/x", b"[]"),
        ("names/fluss/x", b"9"),
        ("names/fluss/x", b"nine"),
        ("tables/7", b"{}"),
        ("partitions/1/1", b"{"),
        ("partitions/9/1", b'{"name":"a","values":["a"],"created":1,"leaders":[],"epoch":0}'),
        ("partitions/1/1", b'{"name":"a","values":["a"],"created":1,"leaders":["x"],"epoch":0}'),
        ("counters/table", b"-1"),
        ("servers/1", b'{"id":1,"listeners":{"A":{"host":"h"}}}'),
        ("servers/x", b'{"id":1,"listeners":{}}'),
        ("servers/2", b'{"id":1,"listeners":{}}'),
        (keys.schema(1, 5), b"{}"),
    ],
)
def test_a_value_that_makes_no_sense_is_corrupt_not_a_crash(key: str, value: bytes) -> None:
    house = House()
    house.table("events", partition_by=("day",))
    house.store.commit([], [Put(key, value)])
    with pytest.raises(MetadataCorrupt):
        Coordinator(house.store)


# --- processes -----------------------------------------------------------------------------------------------

WORKER = """
import sys
import pyarrow as pa
from strom.coordinator import commands
from strom.coordinator.coordinator import Coordinator
from strom.metadata.embedded import EmbeddedStore
from strom.model.schema import Schema
from strom.model.table import TableDescription, TablePath
from strom.runtime.files import LocalFiles
folder, name = sys.argv[1:]
coordinator = Coordinator(EmbeddedStore.open(LocalFiles(), folder, owner=False))
schema = Schema.from_arrow(pa.schema([("day", pa.string())]))
description = TableDescription(schema, partition_keys=("day",))
for number in range(10):
    table = coordinator.perform(commands.create_table, TablePath("fluss", f"{name}{number}"), description, now_ms=1)
    for day in range(3):
        values = {"day": f"d{day}"}
        partition = coordinator.perform(commands.create_partition, table.path, values, now_ms=1)
        print("partition", partition.partition_id)
    block = coordinator.perform(commands.allocate_writer_ids, 7)
    print("table", table.table_id)
    print("writers", *block)
    if number % 2:
        coordinator.perform(commands.drop_table, table.path)
"""


@pytest.mark.slow
def test_processes_that_create_at_once_never_share_an_id(tmp_path: Path) -> None:
    store = EmbeddedStore.open(LocalFiles(), str(tmp_path), owner=True)
    house = House(store)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path), name], stdout=subprocess.PIPE, text=True
        )
        for name in ("a", "b", "c")
    ]
    lines = [line.split() for worker in workers for line in worker.communicate()[0].splitlines()]
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    for kind, count in (("table", 30), ("partition", 90), ("writers", 210)):
        ids = [int(number) for first, *numbers in lines if first == kind for number in numbers]
        assert sorted(ids) == list(range(1, count + 1))
    assert len(house.catalog.all_tables()) == 15
    assert sum(len(house.catalog.partitions_of(table.table_id)) for table in house.catalog.all_tables()) == 45
    store.close()
