"""What a change costs does not depend on how many tables there are: counted in calls and bytes, not in seconds."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType

import pytest

from coordinator.house import House, path
from strom.coordinator import commands
from strom.coordinator.limits import DecisionLimits
from strom.metadata.changes import Put
from strom.metadata.embedded import EmbeddedStore
from strom.metadata.memory import MemoryStore
from strom.metadata.store import MetadataStore
from strom.runtime.files import LocalFiles

FEW, MANY = 50, 1_500
LIMITS = DecisionLimits(partition_num_max=10_000)


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called, Python's and those in C."""
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def bytes_of(work: Callable[[], object]) -> int:
    """How much memory is taken at most, beyond what was taken before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@cache
def _entries(count: int) -> tuple[Put, ...]:
    """The metadata of so many tables, and of one with half as many partitions."""
    house = House(limits=LIMITS)
    for number in range(count):
        house.table(f"fluss.t{number}")
    house.table("fluss.parts", partition_by=("day",))
    for number in range(count // 2):
        house.partition("fluss.parts", {"day": f"d{number}"})
    return tuple(Put(key, entry.value) for key, entry in house.store.read().entries.items())


def _house(store: MetadataStore, count: int) -> House:
    store.commit([], _entries(count))
    return House(store, LIMITS)


def _costs(house: House) -> dict[str, tuple[int, int]]:
    """Calls and bytes of each kind of change, the second time it is made."""
    changes: dict[str, Callable[[str], object]] = {
        "create": lambda name: house.table(f"fluss.{name}"),
        "drop": lambda name: house.do(commands.drop_table, path(f"fluss.{name}")),
        "partition": lambda name: house.partition("fluss.parts", {"day": name}),
        "drop partition": lambda name: house.do(commands.drop_partition, path("fluss.parts"), {"day": name}),
        "writer ids": lambda name: house.do(commands.allocate_writer_ids, 10),
    }
    for change in changes.values():
        change("warm")
    found: dict[str, tuple[int, int]] = {}
    for kind, change in changes.items():
        calls = calls_of(lambda change=change: change("calls"))  # type: ignore[misc]
        found[kind] = (calls, 0)
    for kind, change in changes.items():
        found[kind] = (found[kind][0], bytes_of(lambda change=change: change("bytes")))  # type: ignore[misc]
    return found


@pytest.mark.parametrize("kind", ["memory", "embedded"])
def test_a_change_costs_the_same_among_few_tables_and_among_many(kind: str, tmp_path: Path) -> None:
    def house(name: str, count: int) -> House:
        store: MetadataStore = MemoryStore()
        if kind == "embedded":
            store = EmbeddedStore.open(LocalFiles(), str(tmp_path / name), owner=True)
        return _house(store, count)

    few, many = _costs(house("few", FEW)), _costs(house("many", MANY))
    for change, (calls, size) in many.items():
        assert calls <= 1.3 * few[change][0], change
        assert size <= 1.5 * few[change][1] + 10_000, change


def test_another_process_that_follows_reads_what_is_new_only(tmp_path: Path) -> None:
    files = LocalFiles()

    def following(name: str, count: int) -> int:
        folder = str(tmp_path / name)
        house = _house(EmbeddedStore.open(files, folder, owner=True), count)
        other = House(EmbeddedStore.open(files, folder, owner=False))
        house.table("fluss.one")
        other.coordinator.refresh()
        house.table("fluss.two")
        found = calls_of(other.coordinator.refresh)
        assert other.coordinator.catalog.find_table(path("fluss.two")) is not None
        return found

    assert following("many", MANY) <= 1.3 * following("few", FEW)
