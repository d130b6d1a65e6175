"""A bucket is neither closed nor removed beside its upkeep: an old snapshot could replace a newer manifest."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import strom
from strom.errors import StorageOffline, StoreCorrupt
from strom.model.bucket import BucketId
from strom.runtime.clock import SystemClock
from strom.runtime.tasks import InlineOffload, Tasks
from strom.server.process.local import LocalServer
from strom.server.tablets.bucket_lane import Lane
from strom.server.tablets.tablet_slot import REOPEN_PAUSE_S, TabletSlot
from strom.tablet.key_jobs import TakeSnapshot
from strom.tablet.key_tablet import KeyTablet
from strom.testing.clock import ManualClock
from waiting import until_blocking

SETTINGS = {"kv.snapshot.bytes": "16kb", "kv.segment.file-size": "16kb"}


class Closing:
    """A tablet that notes what was under way when it was let go of."""

    def __init__(self, running: list[str]) -> None:
        self._running = running
        self.beside: list[str] | None = None

    def close(self) -> None:
        self.beside = list(self._running)

    abandon = close

    def retire(self, error: Exception) -> None:
        """Everyone is told."""


@pytest.mark.parametrize(
    ("problem", "tried_again"),
    [
        (StoreCorrupt("a file is not what was written"), True),
        (StorageOffline("the disk failed"), False),
        (OSError("input/output error"), False),
    ],
    ids=["files", "disk", "system"],
)
def test_a_bucket_that_cannot_be_opened_is_tried_again_after_a_pause_unless_the_disk_failed(
    problem: Exception, tried_again: bool
) -> None:
    async def main() -> None:
        clock, tries, tablet = ManualClock(), list[float](), cast(Any, Closing([]))

        def open_tablet() -> Any:
            tries.append(clock.monotonic())
            if len(tries) == 1:
                raise problem
            return tablet

        async def opened() -> Any:
            found = slot.opened()
            return await found if isinstance(found, Awaitable) else found

        slot = TabletSlot(BucketId(1, None, 0), Lane("test", InlineOffload(), Tasks()), open_tablet, clock)
        for seconds in (0.0, 0.0, REOPEN_PAUSE_S - 0.1):
            clock.advance(seconds)
            with pytest.raises(StorageOffline, match=str(problem)):
                await opened()
        assert tries == [0.0], "who comes meanwhile is told why, and nobody tries"
        clock.advance(1.0 if tried_again else 10**6)
        if tried_again:
            assert await opened() is tablet
        else:
            with pytest.raises(StorageOffline):
                await opened()
            assert tries == [0.0], "its second answer may be a yes that means nothing"

    asyncio.run(main())


@pytest.mark.parametrize("way", ["close", "remove"])
def test_a_job_that_begins_when_another_ends_is_waited_for_too(way: str) -> None:
    async def main() -> None:
        running: list[str] = []
        tasks = Tasks()
        slot = TabletSlot(
            BucketId(1, None, 0), Lane("test", InlineOffload(), tasks), cast(Any, None), SystemClock()
        )
        tablet = Closing(running)
        slot.tablet = cast(Any, tablet)
        go_on = [asyncio.Event(), asyncio.Event()]

        async def job(number: int) -> None:
            running.append(f"job {number}")
            await go_on[number].wait()
            running.clear()
            slot.job = None

        def begin_second(_: object) -> None:
            slot.job = tasks.spawn(job(1), "second")

        slot.job = tasks.spawn(job(0), "first")
        slot.job.add_done_callback(begin_second)
        if way == "remove":
            slot.retire()
        closing = asyncio.ensure_future(slot.close() if way == "close" else slot.remove(lambda: None))
        for event in go_on:
            for _ in range(10):
                await asyncio.sleep(0)
            assert tablet.beside is None, "let go of beside a job"
            event.set()
        await asyncio.wait_for(closing, 10)
        assert tablet.beside == []
        await tasks.close()

    asyncio.run(main())


class SlowSnapshots:
    """Snapshots that wait until they are told to go on, and note tablets that were let go of meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.let_go_of = threading.Event()
        self.beside = False
        self.written = 0
        self._patch(monkeypatch)

    def _patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        work = TakeSnapshot.work

        def slow(job: TakeSnapshot) -> None:
            self.begun.set()
            assert self.go_on.wait(20)
            work(job)
            self.beside |= self.let_go_of.is_set()
            self.written += 1

        monkeypatch.setattr(TakeSnapshot, "work", slow)
        for name in ("close", "abandon"):
            monkeypatch.setattr(KeyTablet, name, self._noting(getattr(KeyTablet, name)))

    def _noting(self, original: Any) -> Any:
        def noting(tablet: KeyTablet) -> None:
            self.let_go_of.set()
            original(tablet)

        return noting


@pytest.fixture
def snapshots(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowSnapshots]:
    slow = SlowSnapshots(monkeypatch)
    yield slow
    slow.go_on.set()


def fill(db: strom.Connection) -> strom.Table:
    table = db.create_table("t", {"id": "BIGINT", "text": "STRING"}, primary_key="id")
    table.upsert({"id": list(range(2000)), "text": [f"text {number}" for number in range(2000)]})
    table.flush()
    return table


@pytest.mark.slow
def test_a_stop_waits_for_a_snapshot_under_way(tmp_path: Path, snapshots: SlowSnapshots) -> None:
    with LocalServer(tmp_path / "data", SETTINGS) as server:
        with strom.connect(server.address) as db:
            fill(db)
            assert snapshots.begun.wait(20)
        threading.Timer(0.3, snapshots.go_on.set).start()
    assert snapshots.written
    assert snapshots.let_go_of.is_set()
    assert not snapshots.beside, "closed beside its snapshot"
    with LocalServer(tmp_path / "data") as server, strom.connect(server.address) as db:
        assert db.table("t").count() == 2000


@pytest.mark.slow
def test_a_drop_waits_for_a_snapshot_under_way(tmp_path: Path, snapshots: SlowSnapshots) -> None:
    data = tmp_path / "data"
    with LocalServer(data, SETTINGS) as server, strom.connect(server.address) as db:
        fill(db)
        assert snapshots.begun.wait(20)
        db.drop_table("t")
        threading.Timer(0.3, snapshots.go_on.set).start()
        until_blocking(lambda: not list((data / "buckets").iterdir()))
        assert not list((data / "buckets").iterdir())
    assert snapshots.written == 1
    assert not snapshots.beside, "removed beside its snapshot"


@pytest.mark.parametrize("busy", [None, "has_stages", "pending", "offline"])
def test_a_slot_with_work_is_not_quiet(busy: str | None) -> None:
    """An idle bucket is closed; one that holds rows for a decision would lose its open stages by that."""
    tablet = SimpleNamespace(
        pending=[1] if busy == "pending" else [],
        online=busy != "offline",
        has_stages=busy == "has_stages",
    )
    lane = Lane("b", InlineOffload(), Tasks())
    slot = TabletSlot(BucketId(1, None, 0), lane, lambda: cast(Any, None), SystemClock())
    assert slot.quiet
    slot.tablet = cast(Any, tablet)
    assert slot.quiet == (busy is None)
