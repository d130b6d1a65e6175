"""Upkeep jobs: the long part beside the lane, what fails is abandoned and tried again later, bounded hands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from strom.errors import StorageOffline, StoreCorrupt, StromError
from strom.model.bucket import BucketId
from strom.runtime.files import LocalFiles
from strom.runtime.metrics import Metrics
from strom.runtime.tasks import InlineOffload, Tasks
from strom.server.background.disk_space import DiskSpace
from strom.server.background.key_jobs import PAUSE_AFTER_FAILURE_S, KeyJobs
from strom.server.tablets.auto_increment import BucketNumbers
from strom.server.tablets.bucket_lane import Lane
from strom.server.tablets.tablet_slot import TabletSlot


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1000)


class Step:
    """A job that notes what happens to it."""

    def __init__(
        self, tablet: Tablet, name: str, problem: BaseException | None = None, late: bool = False
    ) -> None:
        self.name = name
        self._tablet = tablet
        self._problem = problem
        self._late = late

    def work(self) -> None:
        self._tablet.seen.append(f"work {self.name}")
        if self._problem is not None and not self._late:
            raise self._problem

    def finish(self) -> None:
        if self._problem is not None:
            raise self._problem
        self._tablet.seen.append(f"finish {self.name}")

    def abandon(self) -> None:
        self._tablet.seen.append(f"abandon {self.name}")


class Tablet:
    """A primary-key bucket with jobs to do."""

    def __init__(self, bucket: BucketId) -> None:
        self.bucket = bucket
        self.jobs: list[Step] = []
        self.seen: list[str] = []
        self.high_watermark = self.settled = 1
        self.error: StromError | None = None

    @property
    def online(self) -> bool:
        return self.error is None

    def next_job(self, now_ms: int) -> Step | None:
        self.seen.append("asked")
        return self.jobs.pop(0) if self.jobs else None

    def broken(self, what: str) -> StorageOffline:
        self.seen.append("broken")
        return StorageOffline(what)

    def fail(self, error: StromError) -> None:
        self.error = error


class Tables:
    """Every table has a key."""

    def of(self, table_id: int) -> Any:
        return self

    @property
    def table(self) -> Any:
        return self

    @property
    def schema(self) -> Any:
        return self

    primary_key = ("id",)


def tended(
    test: Callable[[KeyJobs, list[Tablet], Clock], Awaitable[None]], folder: Path, buckets: int = 1
) -> None:
    async def main() -> None:
        clock, tasks, offload = Clock(), Tasks(), InlineOffload()
        tablets = [Tablet(BucketId(1, None, number)) for number in range(buckets)]
        slots = []
        for tablet in tablets:
            slot = TabletSlot(tablet.bucket, Lane(str(tablet.bucket), offload, tasks), lambda: None, clock)  # type: ignore[arg-type,return-value]
            slot.tablet = tablet  # type: ignore[assignment]
            slots.append(slot)
        space = DiskSpace(LocalFiles(), [str(folder)], free_bytes_min=0, clock=clock)  # type: ignore[arg-type]
        jobs = KeyJobs(slots, Tables(), space, offload, tasks, clock, Metrics(), at_once=1)  # type: ignore[arg-type]
        await asyncio.wait_for(test(jobs, tablets, clock), 20)
        await tasks.close()

    asyncio.run(main())


async def quiet() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


def test_jobs_are_done_one_after_the_other_until_none_is_left(tmp_path: Path) -> None:
    async def test(jobs: KeyJobs, tablets: list[Tablet], clock: Clock) -> None:
        (tablet,) = tablets
        tablet.jobs = [Step(tablet, "carry"), Step(tablet, "merge")]
        jobs.look()
        await quiet()
        assert tablet.seen == [
            "asked",
            "work carry",
            "finish carry",
            "asked",
            "work merge",
            "finish merge",
            "asked",
        ]
        jobs.look()
        await quiet()
        assert tablet.seen.count("asked") == 3, "nothing was written since: nobody asks"
        tablet.settled += 1
        jobs.look()
        await quiet()
        assert tablet.seen.count("asked") == 4

    tended(test, tmp_path)


def test_rows_that_settle_after_readers_see_them_are_tended_as_soon_as_they_have(tmp_path: Path) -> None:
    """Under ``os``, rows of several copies are visible up to a sync interval before upkeep may build on them."""

    async def test(jobs: KeyJobs, tablets: list[Tablet], clock: Clock) -> None:
        (tablet,) = tablets
        tablet.high_watermark = 10
        jobs.look()
        await quiet()
        assert tablet.seen == ["asked"]
        tablet.settled, tablet.jobs = 10, [Step(tablet, "carry")]
        jobs.look()
        await quiet()
        assert tablet.seen[1:] == ["asked", "work carry", "finish carry", "asked"]

    tended(test, tmp_path)


def test_a_job_that_failed_is_abandoned_and_tried_again_after_a_pause(tmp_path: Path) -> None:
    async def test(jobs: KeyJobs, tablets: list[Tablet], clock: Clock) -> None:
        (tablet,) = tablets
        tablet.jobs = [Step(tablet, "carry", OSError("no room")), Step(tablet, "carry")]
        jobs.look()
        await quiet()
        assert tablet.seen == ["asked", "work carry", "abandon carry"]
        assert tablet.online, "what a job writes aside harms nobody"
        tablet.settled += 1
        jobs.look()
        await quiet()
        assert tablet.seen.count("asked") == 1
        clock.now += PAUSE_AFTER_FAILURE_S
        jobs.look()
        await quiet()
        assert tablet.seen[3:] == ["asked", "work carry", "finish carry", "asked"]

    tended(test, tmp_path)


@pytest.mark.parametrize("problem", [OSError("worn"), StoreCorrupt("read back wrongly"), ValueError("a bug")])
def test_whatever_fails_at_the_end_of_a_job_takes_the_bucket_offline(
    tmp_path: Path, problem: Exception
) -> None:
    async def test(jobs: KeyJobs, tablets: list[Tablet], clock: Clock) -> None:
        (tablet,) = tablets
        tablet.jobs = [Step(tablet, "snapshot", problem, late=True)]
        jobs.look()
        await quiet()
        assert "broken" in tablet.seen, "in the lane, before the next write"
        assert isinstance(tablet.error, StorageOffline)

    tended(test, tmp_path)


def test_a_job_that_takes_its_bucket_offline_is_told_to_those_who_wait(tmp_path: Path) -> None:
    async def test(jobs: KeyJobs, tablets: list[Tablet], clock: Clock) -> None:
        (tablet,) = tablets
        tablet.jobs = [Step(tablet, "snapshot", StorageOffline("the sync failed"))]
        jobs.look()
        await quiet()
        assert isinstance(tablet.error, StorageOffline)

    tended(test, tmp_path)


def test_no_more_buckets_are_tended_at_once_than_there_are_hands(tmp_path: Path) -> None:
    async def test(jobs: KeyJobs, tablets: list[Tablet], clock: Clock) -> None:
        for tablet in tablets:
            tablet.jobs = [Step(tablet, "carry")]
        jobs.look()
        await quiet()
        assert [len(tablet.seen) > 0 for tablet in tablets] == [True, False, False]
        for _ in range(2):
            jobs.look()
            await quiet()
        assert all("finish carry" in tablet.seen for tablet in tablets)

    tended(test, tmp_path, buckets=3)


def test_numbers_come_from_blocks_and_never_twice() -> None:
    asked: list[int] = []

    def allocate(count: int) -> range:
        first = 1 + sum(asked)
        asked.append(count)
        return range(first, first + count)

    numbers = BucketNumbers(allocate, block=10)
    assert numbers.take(3).tolist() == [1, 2, 3]
    assert asked == [10]
    assert numbers.take(25).tolist() == list(range(4, 29))
    assert numbers.take(0).tolist() == []
    assert numbers.take(2).tolist() == [29, 30]
