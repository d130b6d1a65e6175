"""Upkeep of primary-key buckets: carry, merge, snapshot, build indexes, a few buckets at a time.

A bucket says what it needs (``next_job``, in its lane); the long part runs in a thread beside writers and readers; the
lane swaps the result in. A job that fails leaves the bucket as it was and is retried after a pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from strom.errors import StorageFull, StorageOffline, StromError
from strom.runtime.clock import Clock
from strom.runtime.metrics import Metrics
from strom.runtime.tasks import Offload, Tasks
from strom.server.background.disk_space import DiskSpace
from strom.server.tablets.key_forms import key_tablet
from strom.server.tablets.table_facts import Tables
from strom.server.tablets.tablet_slot import TabletSlot
from strom.server.tablets.tablets import Tablets
from strom.tablet.tablet import Tablet

if TYPE_CHECKING:
    from strom.tablet.key_tablet import Job

LOOK_EVERY_S = 0.25
ASK_AGAIN_S = 30.0
"""How often a bucket without writes is checked: some jobs become due by time alone."""
PAUSE_AFTER_FAILURE_S = 60.0
JOBS_IN_A_ROW_MAX = 100

logger = logging.getLogger(__name__)


class KeyJobs:
    """Tends every open primary-key bucket of this server, ``at_once`` of them at a time."""

    def __init__(
        self,
        tablets: Tablets,
        tables: Tables,
        space: DiskSpace,
        offload: Offload,
        tasks: Tasks,
        clock: Clock,
        metrics: Metrics,
        *,
        at_once: int,
    ) -> None:
        self._tablets = tablets
        self._tables = tables
        self._space = space
        self._offload = offload
        self._tasks = tasks
        self._clock = clock
        self._idle_workers = at_once
        self._idle: dict[int, tuple[int, object, float]] = {}
        """By tablet: what was settled and its definition when it had nothing to do, and when to check it anyway."""
        self._done = metrics.counter(
            "strom_key_jobs_total", "Upkeep jobs of primary-key buckets that ended well"
        )
        self._failures = metrics.counter("strom_key_job_failures_total", "Upkeep jobs that failed")
        self._stopping = False

    async def run(self) -> None:
        """Run forever."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        """Start what is due, as far as there are free threads."""
        alive: set[int] = set()
        for slot in self._tablets:
            tablet = slot.tablet
            if tablet is None or not self._has_keys(slot):
                continue
            alive.add(id(tablet))
            if self._idle_workers and slot.job is None and tablet.online and self._due(slot, tablet):
                self._idle_workers -= 1
                slot.job = self._tasks.spawn(self._tend(slot, tablet), f"upkeep of {slot.bucket}")
        for gone in self._idle.keys() - alive:
            del self._idle[gone]

    def stop(self) -> None:
        """Start nothing more; running jobs may end."""
        self._stopping = True

    async def tend(self, slot: TabletSlot) -> int:
        """Do everything that is due in one bucket; returns the number of jobs."""
        done = 0
        while done < JOBS_IN_A_ROW_MAX and not self._stopping:
            job = await _in_lane(slot, lambda tablet: key_tablet(tablet).next_job(self._clock.now_ms()))
            if job is None:
                break
            await self._perform(slot, job)
            done += 1
        return done

    # --- one bucket ------------------------------------------------------------------------------------

    async def _tend(self, slot: TabletSlot, tablet: Tablet) -> None:
        slot.readers += 1  # a bucket that is being tended is not idle
        pause = ASK_AGAIN_S
        end, defined_by = tablet.settled, slot.defined_by
        try:
            self._space.refuse_when_full()
            await self.tend(slot)
        except (StromError, OSError) as error:
            pause, end = PAUSE_AFTER_FAILURE_S, 1 << 62
            if tablet.online and not isinstance(error, StorageFull):
                self._failures.inc()
                logger.warning("upkeep of bucket %s: %s", slot.bucket, error)
            if isinstance(error, StorageOffline) and slot.tablet is tablet:
                tablet.fail(error)  # here, not in the lane: those who wait for the bucket wait on this loop
        finally:
            slot.readers -= 1
            slot.job = None
            self._idle_workers += 1
            self._idle[id(tablet)] = (end, defined_by, self._clock.monotonic() + pause)

    async def _perform(self, slot: TabletSlot, job: Job) -> None:
        try:
            await self._offload.run(job.work)
        except BaseException:
            await _in_lane(slot, lambda tablet: job.abandon())
            raise
        await _in_lane(slot, lambda tablet: _finish(tablet, job))
        self._done.inc()

    def _has_keys(self, slot: TabletSlot) -> bool:
        try:
            return bool(self._tables.of(slot.bucket.table_id).table.schema.primary_key)
        except StromError:
            return False

    def _due(self, slot: TabletSlot, tablet: Tablet) -> bool:
        if slot.held_up:
            return False  # checked again when it can be done
        end, defined_by, again_at = self._idle.get(id(tablet), (-1, None, 0.0))
        moved = tablet.settled > end or slot.defined_by is not defined_by
        return moved or self._clock.monotonic() >= again_at


def _finish(tablet: Tablet, job: Job) -> None:
    """After a failure here the state of the store is unknown: this lane does nothing more."""
    try:
        job.finish()
    except StorageOffline:
        raise
    except Exception as error:
        what = "the disk failed" if isinstance(error, OSError) else "it is in doubt"
        raise key_tablet(tablet).broken(f"{what} after a {job.name} ({error!r})") from error


async def _in_lane(slot: TabletSlot, job: Callable[[Tablet], Any]) -> Any:
    result = slot.do(job, small=False, any_role=True)
    return await result if isinstance(result, asyncio.Future) else result
