"""One sync acknowledges many appends; a failed one is final."""

from __future__ import annotations

import asyncio
import threading

import pytest

from strom.errors import StorageOffline
from strom.runtime.metrics import Metrics
from strom.runtime.tasks import InlineOffload, Tasks, ThreadOffload
from strom.server.background.group_commit import GroupCommit


class Point:
    def __init__(self, bucket: Bucket, end: int) -> None:
        self.bucket = bucket
        self.end = end

    def sync(self) -> None:
        self.bucket.syncs += 1
        self.bucket.gate.wait(10)
        if self.bucket.broken:
            raise OSError("I/O error")


class Bucket:
    def __init__(self) -> None:
        self.end = 0
        self.durable = 0
        self.syncs = 0
        self.broken = False
        self.error: StorageOffline | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.changed = asyncio.Event()

    def append(self) -> None:
        self.end += 1

    def pending_sync(self) -> Point | None:
        return Point(self, self.end) if self.end > self.durable and self.error is None else None

    def synced(self, point: Point) -> None:  # type: ignore[override]
        self.durable = point.end
        self.changed.set()

    def fail(self, error: StorageOffline) -> None:
        self.error = error
        self.changed.set()


async def ended(tasks: Tasks) -> None:
    for _ in range(10):
        await asyncio.sleep(0)
    assert not len(tasks)


def test_appends_during_a_sync_share_the_next_one() -> None:
    async def main() -> None:
        offload, tasks = ThreadOffload(2), Tasks()
        commit, bucket = GroupCommit(offload, tasks, Metrics()), Bucket()
        bucket.gate.clear()
        bucket.append()
        commit.request(bucket)
        await asyncio.sleep(0)
        for _ in range(100):
            bucket.append()
            commit.request(bucket)
        bucket.gate.set()
        while bucket.durable < 101:
            bucket.changed.clear()
            await asyncio.wait_for(bucket.changed.wait(), 10)
        assert bucket.syncs == 2
        await tasks.close()
        offload.close()

    asyncio.run(main())


def test_many_requests_before_a_sync_begins_are_one_sync() -> None:
    async def main() -> None:
        tasks = Tasks()
        commit, bucket = GroupCommit(InlineOffload(), tasks, Metrics()), Bucket()
        for _ in range(10):
            bucket.append()
            commit.request(bucket)
        await asyncio.wait_for(bucket.changed.wait(), 10)
        assert (bucket.syncs, bucket.durable) == (1, 10)
        await tasks.close()

    asyncio.run(main())


def test_a_bucket_that_is_durable_already_costs_nothing() -> None:
    async def main() -> None:
        tasks = Tasks()
        commit, bucket = GroupCommit(InlineOffload(), tasks, Metrics()), Bucket()
        commit.request(bucket)
        await ended(tasks)
        assert bucket.syncs == 0
        await tasks.close()

    asyncio.run(main())


def test_buckets_are_synced_side_by_side_but_never_more_than_the_workers() -> None:
    async def main() -> None:
        offload, tasks = ThreadOffload(8), Tasks()
        commit = GroupCommit(offload, tasks, Metrics(), workers=2)
        buckets = [Bucket() for _ in range(5)]
        for bucket in buckets:
            bucket.gate.clear()
            bucket.append()
            commit.request(bucket)
        assert len(tasks) == 2
        for bucket in buckets:
            bucket.gate.set()
        await asyncio.wait_for(asyncio.gather(*(bucket.changed.wait() for bucket in buckets)), 10)
        assert [bucket.durable for bucket in buckets] == [1] * 5
        await tasks.close()
        offload.close()

    asyncio.run(main())


def test_a_failed_sync_takes_the_bucket_offline_and_is_not_tried_again() -> None:
    async def main() -> None:
        tasks, metrics = Tasks(), Metrics()
        commit, bucket = GroupCommit(InlineOffload(), tasks, metrics), Bucket()
        bucket.broken = True
        bucket.append()
        commit.request(bucket)
        await asyncio.wait_for(bucket.changed.wait(), 10)
        assert isinstance(bucket.error, StorageOffline)
        assert "I/O error" in bucket.error.message
        commit.request(bucket)
        await ended(tasks)
        assert (bucket.syncs, bucket.durable) == (1, 0)
        found = {one["name"]: one["value"] for one in metrics.samples()}
        assert (found["strom_log_syncs_total"], found["strom_log_sync_failures_total"]) == (0, 1)
        await tasks.close()

    asyncio.run(main())


def test_a_server_that_ends_during_a_sync_does_not_begin_another(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        offload, tasks = ThreadOffload(2), Tasks()
        commit = GroupCommit(offload, tasks, Metrics())
        bucket = Bucket()
        bucket.gate.clear()
        bucket.append()
        commit.request(bucket)
        await asyncio.sleep(0)  # the worker begins: the bucket is being synced
        bucket.append()
        commit.request(bucket)
        closing = asyncio.ensure_future(tasks.close())
        await asyncio.sleep(0)
        bucket.gate.set()
        await closing
        offload.close()
        assert bucket.syncs == 1

    asyncio.run(main())
    assert not caplog.records
