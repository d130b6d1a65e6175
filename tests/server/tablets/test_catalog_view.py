"""The loop and the lanes share what a process knows of its tables: every interleaving here is forced, none is luck."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from typing import Any

import pytest

from coordinator.house import described
from strom.coordinator import commands
from strom.coordinator.catalog import Catalog
from strom.coordinator.coordinator import Coordinator
from strom.coordinator.term import Term
from strom.errors import NotCoordinator
from strom.metadata.memory import MemoryStore
from strom.model.table import TablePath
from strom.runtime.metrics import Metrics
from strom.runtime.tasks import ThreadOffload
from strom.server.tablets.catalog_view import CatalogView, TermView
from strom.server.tablets.table_facts import Tables, TableTraffic
from strom.testing import loop as virtual_loop

SOME = described()


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


def _path(name: str) -> TablePath:
    return TablePath("fluss", name)


OFFLOADS: list[ThreadOffload] = []
"""Of the houses of the test that runs."""


@pytest.fixture(autouse=True)
def threads_end_with_their_test() -> Iterator[None]:
    yield
    while OFFLOADS:
        OFFLOADS.pop().close()


class House:
    """A coordinator's view on a store, without a server around it."""

    def __init__(self, store: MemoryStore | None = None, *, alone: bool = True) -> None:
        self.store = store or MemoryStore()
        self.coordinator = Coordinator(self.store)
        self.coordinator.perform(commands.bootstrap, now_ms=0)
        self.offload = ThreadOffload(2)
        OFFLOADS.append(self.offload)
        self.view = CatalogView(self.coordinator, self.offload, alone=alone)

    async def create(self, name: str) -> int:
        table = await self.view.perform(commands.create_table, _path(name), SOME, now_ms=0)
        return int(table.table_id)

    async def drop(self, name: str) -> None:
        await self.view.perform(commands.drop_table, _path(name))


def _in_a_thread(work: Callable[[], object]) -> None:
    """As a lane does it, while the caller stands still."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    if failed:
        raise failed[0]


@on_a_loop
async def test_a_lane_may_open_a_table_while_the_loop_forgets_others(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    metrics = Metrics()
    tables = Tables(house.view, metrics, "os")
    ids = [await house.create(name) for name in ("first", "second", "dropped", "opened")]
    for one in ids[:3]:
        tables.of(one).traffic.rows_in.inc()
    looked, here = Catalog.table_by_id, threading.current_thread()

    def while_a_lane_opens_another(catalog: Catalog, table_id: int) -> object:
        found = looked(catalog, table_id)
        if threading.current_thread() is here:
            _in_a_thread(lambda: tables.of(ids[3]).traffic)
        return found

    monkeypatch.setattr(Catalog, "table_by_id", while_a_lane_opens_another)
    await house.drop("dropped")
    monkeypatch.undo()
    for _ in range(2):  # looking takes nothing away
        assert set(tables.counted()) == {ids[0], ids[1], ids[3]}
    assert {one["labels"]["table"] for one in metrics.samples()} == {
        "fluss.first",
        "fluss.second",
        "fluss.opened",
    }


@on_a_loop
async def test_a_lane_may_open_a_table_while_the_loop_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    tables = Tables(house.view, Metrics(), "os")
    ids = [await house.create(name) for name in ("first", "second", "opened")]
    for one in ids[:2]:
        tables.of(one).traffic.rows_in.inc()
    counted = TableTraffic.counted

    def while_a_lane_opens_another(traffic: TableTraffic) -> dict[str, float]:
        _in_a_thread(lambda: tables.of(ids[2]).traffic)
        return counted(traffic)

    monkeypatch.setattr(TableTraffic, "counted", while_a_lane_opens_another)
    assert {ids[0], ids[1]} <= set(tables.counted())


@on_a_loop
async def test_facts_of_a_table_that_is_dropped_while_a_lane_looks_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house, metrics = House(), Metrics()
    tables = Tables(house.view, metrics, "os")
    table_id = await house.create("t")
    looked, found, go = Catalog.table_by_id, threading.Event(), threading.Event()
    lane = threading.Thread(target=lambda: tables.of(table_id).traffic)

    def and_stand_still(catalog: Catalog, wanted: int) -> object:
        table = looked(catalog, wanted)
        if threading.current_thread() is lane and not found.is_set():
            found.set()
            assert go.wait(10)
        return table

    monkeypatch.setattr(Catalog, "table_by_id", and_stand_still)
    lane.start()
    assert found.wait(10)
    await house.drop("t")
    go.set()
    lane.join(10)
    assert tables.counted() == {}
    assert metrics.samples() == []


@on_a_loop
async def test_a_table_that_is_open_and_not_used_has_no_counters() -> None:
    house, metrics = House(), Metrics()
    tables = Tables(house.view, metrics, "os")
    used, idle = await house.create("used"), await house.create("idle")
    tables.of(idle)
    tables.of(used).traffic.rows_in.inc(3)
    assert {one["labels"]["table"] for one in metrics.samples()} == {"fluss.used"}
    assert tables.counted()[used]["rows_in"] == 3
    assert idle not in tables.counted()


@on_a_loop
async def test_a_watcher_that_fails_keeps_nobody_from_hearing_and_hears_all_of_it_later() -> None:
    house = House()
    heard: list[int] = []
    failing: list[set[int]] = []
    broken = True

    def fails(change: object) -> None:
        if broken:
            raise RuntimeError("a mistake of ours")
        failing.append(set(change.tables))  # type: ignore[attr-defined]

    house.view.watch(fails)
    house.view.watch(lambda change: heard.append(change.catalog.version))
    first = await house.create("first")
    assert heard == [house.view.catalog.version]
    broken = False
    second = await house.create("second")
    assert failing == [{first, second}]
    assert len(heard) == 2


@on_a_loop
async def test_a_change_is_told_though_its_caller_went_away() -> None:
    house = House()
    told = asyncio.Event()
    house.view.watch(lambda change: told.set())
    inside, go = threading.Event(), threading.Event()

    def held_up(catalog: Catalog) -> object:
        inside.set()
        assert go.wait(10)
        return commands.create_table(catalog, _path("t"), SOME, now_ms=0)

    asking = asyncio.ensure_future(house.view.perform(held_up))
    await asyncio.get_running_loop().run_in_executor(None, inside.wait, 10)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    go.set()
    await asyncio.wait_for(told.wait(), 10)
    assert house.view.catalog.find_table(_path("t")) is not None


@on_a_loop
async def test_what_a_lane_learns_of_is_told_on_the_loop() -> None:
    store = MemoryStore()
    house, other = House(store, alone=False), House(store)
    here = threading.current_thread()
    told_in: list[threading.Thread] = []
    house.view.watch(lambda change: told_in.append(threading.current_thread()))
    await other.create("t")
    _in_a_thread(house.view.fresh)
    assert house.view.catalog.find_table(_path("t")) is not None
    house.view.fresh()
    assert told_in == [here]


@on_a_loop
async def test_a_watcher_that_looks_again_is_not_told_in_the_middle() -> None:
    store = MemoryStore()
    house, other = House(store, alone=False), House(store)
    heard: list[tuple[str, int]] = []

    def looks(change: object) -> None:
        heard.append(("looks", change.catalog.version))  # type: ignore[attr-defined]
        if len(heard) == 1:
            other.coordinator.perform(commands.create_table, _path("later"), SOME, now_ms=0)
            house.view.fresh()

    house.view.watch(looks)
    house.view.watch(lambda change: heard.append(("beside", change.catalog.version)))
    await other.create("t")
    house.view.fresh()
    first, later = store.read().version - 1, store.read().version
    assert heard == [("looks", first), ("beside", first), ("looks", later), ("beside", later)]


# --- the term of an active coordinator --------------------------------------------------------------------------------


async def _takes_over(house: House, name: str, instead_of: str | None) -> TermView:
    assert await house.view.perform(commands.take_over, name, {}, instead_of=instead_of)
    term = Term.of(house.view.catalog, name)
    assert term is not None
    return TermView(house.view, term)


@on_a_loop
async def test_changes_in_a_term_are_fenced_and_others_of_the_process_are_not() -> None:
    first, second = House(store := MemoryStore(), alone=False), House(store, alone=False)
    view = await _takes_over(first, "a", None)
    await view.perform(commands.create_database, "in_the_term", now_ms=0)
    await _takes_over(second, "b", "a")
    with pytest.raises(NotCoordinator):
        await view.perform(commands.create_database, "after_it", now_ms=0)
    await first.view.perform(commands.allocate_writer_ids, 5)
    assert first.view.fresh().databases() == ["fluss", "in_the_term"]


@on_a_loop
async def test_watchers_of_a_term_end_with_it_and_the_others_stay() -> None:
    house = House()
    told: list[str] = []
    house.view.watch(lambda change: told.append("process"))
    view = await _takes_over(house, "a", None)
    told.clear()
    view.watch(lambda change: told.append("term"))
    await house.create("first")
    assert told == ["process", "term"]
    view.end()
    await house.create("second")
    assert told == ["process", "term", "process"]


@on_a_loop
async def test_a_watcher_may_end_while_the_others_are_told() -> None:
    house = House()
    told: list[str] = []
    house.view.watch(lambda change: (told.append("first"), forget())[0])
    forget = house.view.watch(lambda change: told.append("second"))
    house.view.watch(lambda change: told.append("third"))
    await house.create("some")
    assert told == ["first", "third"]


@on_a_loop
async def test_a_change_that_the_store_hears_of_is_followed_at_once() -> None:
    first, second = House(store := MemoryStore(), alone=False), House(store, alone=False)
    followed = asyncio.Event()
    second.view.watch(lambda change: followed.set())
    following = asyncio.ensure_future(second.view.follow())
    await asyncio.sleep(0)
    await first.create("new")
    async with asyncio.timeout(10):
        await followed.wait()
    following.cancel()
    assert second.view.catalog.find_table(_path("new")) is not None


class CountingStore(MemoryStore):
    """It counts how often somebody looks for changes."""

    def __init__(self, hears: bool) -> None:
        super().__init__()
        self.hears = hears
        self.looks = 0

    def changed_since(self, version: int) -> bool:
        self.looks += 1
        return super().changed_since(version)


@pytest.mark.parametrize(("hears", "most"), [(True, 2), (False, 10_000)])
def test_nobody_looks_for_changes_that_the_store_hears_of_by_itself(hears: bool, most: int) -> None:
    """A process that does nothing, for a minute of virtual time."""

    async def follow() -> int:
        house = House(store := CountingStore(hears), alone=False)
        store.looks = 0
        following = asyncio.ensure_future(house.view.follow())
        await asyncio.sleep(60)
        following.cancel()
        return store.looks

    looks = virtual_loop.run(follow())
    assert 0 < looks <= most
    assert hears or looks > 60, "else nobody would ever learn of them"
