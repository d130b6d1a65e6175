"""What a change costs does not depend on how many tables there are: counted in calls and bytes, not in seconds.

And a tablet server decodes the entries of its own copies only, and keeps those of others in little memory.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from types import FrameType

import pytest

from coordinator.house import House, path
from strom.coordinator import commands, keys, replica_rows
from strom.coordinator.catalog import Catalog
from strom.coordinator.limits import DecisionLimits
from strom.coordinator.touched import bucket_in
from strom.metadata.changes import Put
from strom.metadata.embedded import EmbeddedStore
from strom.metadata.entry_map import EntryMap
from strom.metadata.memory import MemoryStore
from strom.metadata.store import Delta, Entry, MetadataStore, Snapshot
from strom.model.bucket import BucketId
from strom.replication.bucket_entry import Assignment, BucketEntry, decode_bucket, encode_bucket
from strom.replication.member import CopyIdentity, Member
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


# --- a tablet server among many --------------------------------------------------------------------------------------

SERVERS, BUCKETS = 100, 20_000
OURS = 7


def _servers(number: int) -> list[int]:
    """Who has the copies of a bucket."""
    return [(number + one * (1 + number // SERVERS % 33)) % SERVERS for one in range(3)]


@cache
def _member(server_id: int) -> Member:
    """The disk is random, as a real one is: nothing shortens it."""
    return Member(server_id, CopyIdentity(Random(server_id).randbytes(16).hex(), 1))


def _entry(number: int) -> bytes:
    servers = tuple(_servers(number))
    members = tuple(sorted(map(_member, servers)))
    placed = tuple(Assignment(one, 1) for one in servers)
    return encode_bucket(BucketEntry(placed, servers, servers[0], 2**61 + servers[0], 1, members))


def _key(number: int) -> str:
    return keys.replicas(BucketId(1 + number // 1_000, None, number % 1_000))


@cache
def _bucket_entries() -> dict[str, Entry]:
    return {_key(number): Entry(_entry(number), 1) for number in range(BUCKETS)}


def _own_keys() -> set[str]:
    return {_key(number) for number in range(BUCKETS) if OURS in _servers(number)}


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the entries that were decoded, checked or outlined, each time."""
    found: list[str] = []
    for name in ("decode_bucket", "outline_bucket"):
        read = getattr(replica_rows, name)

        def noted(key: str, value: bytes, read: Callable[[str, bytes], object] = read) -> object:
            found.append(key)
            return read(key, value)

        monkeypatch.setattr(replica_rows, name, noted)
    return found


def test_a_tablet_server_decodes_the_entries_of_its_own_copies_and_those_it_is_asked_for(
    decoded: list[str],
) -> None:
    entries = _bucket_entries()
    ours = _own_keys()
    catalog = Catalog.of(Snapshot(1, entries), LIMITS, OURS)
    assert sorted(decoded) == sorted(ours)
    assert {keys.replicas(one) for one in catalog.replicas.on(OURS)} == ours
    assert len(catalog.replicas) == BUCKETS
    decoded.clear()
    asked = next(key for key in entries if key not in ours)
    found = catalog.replicas.get(bucket_in(asked))
    assert found == decode_bucket(asked, entries[asked].value)
    assert decoded == [asked]


def test_a_change_that_does_not_concern_a_tablet_server_is_kept_and_not_decoded(decoded: list[str]) -> None:
    entries = _bucket_entries()
    ours = _own_keys()
    catalog = Catalog.of(Snapshot(1, entries), LIMITS, OURS)
    others = [key for key in entries if key not in ours][:500]
    changed = dict(zip(others, (entries[key] for key in reversed(others)), strict=True))
    newer = {key: Entry(one.value, 2) for key, one in changed.items()}
    for key in others[:3]:
        assert catalog.replicas.versioned(bucket_in(key)) == (decode_bucket(key, entries[key].value), 1)
    decoded.clear()
    catalog, touched = catalog.advanced(Delta(1, 2, newer, ()))
    assert (decoded, touched.buckets) == ([], frozenset())
    for key in others[:3]:
        assert catalog.replicas.versioned(bucket_in(key)) == (decode_bucket(key, newer[key].value), 2)
    given, taken = others[0], min(ours)
    decoded.clear()
    swap = {given: Entry(entries[taken].value, 3), taken: Entry(entries[given].value, 3)}
    catalog, touched = catalog.advanced(Delta(2, 3, swap, ()))
    assert touched.buckets == {bucket_in(given), bucket_in(taken)}
    assert set(decoded) == {given, taken}
    assert {keys.replicas(one) for one in catalog.replicas.on(OURS)} == ours - {taken} | {given}
    catalog, touched = catalog.advanced(Delta(3, 4, {}, [given, others[1]]))
    assert touched.buckets == {bucket_in(given)}
    assert len(catalog.replicas) == BUCKETS - 2


def test_entries_of_others_take_less_memory_than_their_bytes() -> None:
    entries = _bucket_entries()
    raw = sum(len(key) + len(one.value) for key, one in entries.items())
    kept: list[Catalog] = []

    def start() -> None:
        read = {key: Entry(bytes(bytearray(one.value)), 1) for key, one in entries.items()}
        kept.append(Catalog.of(Snapshot(1, EntryMap.of(read)), LIMITS, OURS))

    start()  # what is kept once, such as what was unpacked last
    tracemalloc.start()
    try:
        start()
        assert tracemalloc.get_traced_memory()[0] < 0.7 * raw
    finally:
        tracemalloc.stop()


def test_all_catalogs_of_a_store_share_its_entries() -> None:
    store = MemoryStore()
    store.commit([], [Put(key, one.value) for key, one in list(_bucket_entries().items())[:3_000]])
    tracemalloc.start()
    try:
        catalog = Catalog.of(store.read(), LIMITS, OURS)
        one = tracemalloc.get_traced_memory()[0]
        assert len(catalog.replicas) == 3_000
    finally:
        tracemalloc.stop()
    assert one < 0.1 * sum(len(entry.value) for entry in store.read().entries.values())
