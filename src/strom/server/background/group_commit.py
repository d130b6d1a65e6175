"""Group commit: one sync makes many appends durable and acknowledges all of them.

A bucket with unsynced appends waits in a queue; a worker takes it, syncs its files in a thread and raises its high
watermark. Appends that arrive meanwhile queue again, so the longer a sync takes, the more appends share the next one.
Several buckets are synced at the same time, because a disk does that at little more than the price of one.

A failed sync is final for its bucket: the disk may have dropped the pages, so a second sync would lie.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Protocol

from strom.errors import StorageOffline
from strom.runtime.metrics import Metrics
from strom.runtime.tasks import Offload, Tasks


class Syncable(Protocol):
    """A bucket, as group commit sees it."""

    def pending_sync(self) -> Any:
        """What to sync (its ``sync`` blocks, in any thread), or None."""

    def synced(self, point: Any) -> None:
        """The sync succeeded."""

    def fail(self, error: StorageOffline) -> None:
        """The sync failed, and will not be retried."""


class GroupCommit:
    """Syncs buckets, ``workers`` at a time."""

    def __init__(self, offload: Offload, tasks: Tasks, metrics: Metrics, *, workers: int = 4) -> None:
        self._offload = offload
        self._tasks = tasks
        self._idle_workers = workers
        self._line: deque[Syncable] = deque()
        self._queued: set[int] = set()
        self._syncing: set[int] = set()
        self._again: set[int] = set()
        self._syncs = metrics.counter("strom_log_syncs_total", "Syncs of a bucket's files to the disk")
        self._failures = metrics.counter("strom_log_sync_failures_total", "Syncs that failed")

    def request(self, bucket: Syncable) -> None:
        """Sync ``bucket`` soon. Many requests before the sync begins count as one."""
        key = id(bucket)
        if key in self._syncing:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._line.append(bucket)
            if self._idle_workers:
                self._idle_workers -= 1
                self._tasks.spawn(self._work(), "group commit")

    async def _work(self) -> None:
        try:
            while self._line:
                await self._sync(self._line.popleft())
        finally:
            self._idle_workers += 1

    async def _sync(self, bucket: Syncable) -> None:
        key = id(bucket)
        self._queued.discard(key)
        self._syncing.add(key)
        try:
            point = bucket.pending_sync()
            if point is not None:
                await self._offload.run(point.sync)
                self._syncs.inc()
                bucket.synced(point)
        except asyncio.CancelledError:
            self._again.discard(key)  # the server stops: nobody will sync it again
            raise
        except Exception as error:
            self._failures.inc()
            bucket.fail(
                StorageOffline(f"the disk failed to sync: {error}; restart the server once the disk is well")
            )
        finally:
            self._syncing.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.request(bucket)
