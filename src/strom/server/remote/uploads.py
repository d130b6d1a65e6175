"""Which bucket goes up when, and what becomes of a store that does not answer.

Every second the open buckets that this server leads are looked at. One goes up when enough of it is not in the store,
or when it has waited long enough; a few at the same time, each stretch by stretch. Whatever fails is tried again after
a pause that grows; nobody else waits for it. Only what is stable goes up: what no loss of power takes back (C5, R23).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from strom.errors import Fenced, StromError
from strom.model import properties
from strom.model.bucket import BucketId
from strom.remote.remote_expiry import RemoteRetention, expired_below, removal_due
from strom.runtime.clock import Clock
from strom.runtime.metrics import Metrics
from strom.runtime.random import Randomness
from strom.runtime.tasks import Tasks
from strom.server.background.group_commit import GroupCommit
from strom.server.background.sync_once import durable
from strom.server.remote.bucket_upload import BucketUpload, Progress, UploadGoal
from strom.server.remote.chain_owner import ChainOwner
from strom.server.remote.remote_logs import RemoteLogs
from strom.server.remote.table_about import about_bucket
from strom.server.remote.upload_facts import UploadFacts
from strom.server.tablets.catalog_view import CatalogView
from strom.server.tablets.lake_places import lake_place, log_needed_from
from strom.server.tablets.table_facts import Tables
from strom.server.tablets.tablet_slot import TabletSlot
from strom.server.tablets.tablets import Tablets, wait_for
from strom.tablet.tablet import Tablet

LOOK_EVERY_S = 1.0
AT_ONCE = 2
"""Each holds a stretch in memory, twice."""
EXPIRE_EVERY_S = 60.0
PAUSE_S = 1.0
PAUSE_MAX_S = 60.0
ID_BYTES = 8

logger = logging.getLogger(__name__)


@dataclass
class BucketCourse:
    """How far one bucket is."""

    bucket: BucketId
    end: int | None = None
    """Where the remote log ends; None: nobody has looked yet."""
    waits_since: float | None = None
    """Since when there is something to upload."""
    pending_bytes: int = 0
    error: str = ""
    pause_s: float = 0.0
    next_at: float = 0.0
    expires_at: float = 0.0
    """When to look next whether rows expired."""
    upload: BucketUpload | None = None
    task: asyncio.Task[None] | None = None


class Uploads:
    """Those of one server. Belongs to its loop."""

    def __init__(
        self,
        remote: RemoteLogs,
        tablets: Tablets,
        tables: Tables,
        view: CatalogView,
        commit: GroupCommit,
        clock: Clock,
        randomness: Randomness,
        metrics: Metrics,
        *,
        expiry: Clock,
        writer_expiry_ms: int,
    ) -> None:
        """``expiry``: the time by which rows expire."""
        self._remote, self._tablets, self._tables, self._view = remote, tablets, tables, view
        self._commit, self._clock, self._randomness = commit, clock, randomness
        self._expiry, self._writer_expiry_ms = expiry, writer_expiry_ms
        self._courses: dict[BucketId, BucketCourse] = {}
        self._tasks = Tasks()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._owner = ChainOwner(remote)
        self.facts = UploadFacts(metrics, lambda: list(self._courses.values()), clock)

    async def run(self) -> None:
        """Look again and again, forever."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        """Begin what is due."""
        seen: set[BucketId] = set()
        for slot in self._tablets:
            if slot.role is None or slot.role.leads:
                seen.add(slot.bucket)
                self._look_at(slot)
        for bucket in self._courses.keys() - seen:
            self._forget(bucket)

    async def drain(self) -> None:
        """Upload everything that is stable, now. For tests, and for who is about to leave."""
        while True:
            busy = [one.task for one in self._courses.values() if one.task is not None]
            if busy:
                await asyncio.gather(*busy, return_exceptions=True)
                continue
            for slot in self._tablets:
                if slot.tablet is not None and (slot.role is None or slot.role.leads):
                    self._look_at(slot, at_once=True)
            if not any(one.task is not None for one in self._courses.values()):
                return

    async def close(self) -> None:
        """End what is under way."""
        await self._tasks.close()

    def _expiry_due(self, course: BucketCourse, tablet: Tablet) -> int | None:
        """Up to where the remote log may be given up now; None when there is nothing to do about its old rows."""
        now = self._clock.monotonic()
        if course.end is None or now < course.expires_at:
            return None
        course.expires_at = now + EXPIRE_EVERY_S
        manifest, now_ms = self._remote.of(course.bucket).manifest, self._expiry.now_ms()
        wanted = self._tables.of(course.bucket.table_id).table.description.properties
        retention = RemoteRetention(
            properties.log_ttl_ms(wanted),
            properties.log_retention_bytes(wanted),
            None if tablet.has_keys else log_needed_from(self._view.catalog, course.bucket),
            tablet.pieces.emptied_at(tablet.high_watermark),
        )
        below = expired_below(manifest, retention, now_ms=now_ms, rest_bytes=course.pending_bytes)
        leaving = bool(manifest.segments) and manifest.segments[0].end_offset <= below
        if leaving or removal_due(manifest, now_ms=now_ms, grace_ms=self._remote.access.delete_grace_ms):
            return below
        return None

    async def _expire(self, slot: TabletSlot, tablet: Tablet, course: BucketCourse, below: int) -> None:
        async with self._working(slot, course):
            await self._owner.check()
            again = True
            while again and slot.tablet is tablet and tablet.leading:
                goal = self._goal(tablet)
                upload = self._upload_of(slot, course, goal)
                grace_ms = self._remote.access.delete_grace_ms
                again = (await self._remote.loop.run(upload.expire(goal, below, grace_ms))).again
                self._remote.tell(tablet, self._remote.of(slot.bucket).past)

    def _forget(self, bucket: BucketId) -> None:
        course = self._courses.pop(bucket)
        if course.task is not None:
            course.task.cancel()

    def _look_at(self, slot: TabletSlot, *, at_once: bool = False) -> None:
        tablet, now = slot.tablet, self._clock.monotonic()
        if tablet is None:
            self._look_at_closed(slot, now)
            return
        if not tablet.online or tablet.closed or not tablet.leading:
            return
        course = self._courses.setdefault(slot.bucket, BucketCourse(slot.bucket))
        if course.task is not None or (now < course.next_at and not (at_once and not course.error)):
            return
        if not at_once and (below := self._expiry_due(course, tablet)) is not None:
            course.task = self._tasks.spawn(self._expire(slot, tablet, course, below), "expire a remote log")
            return
        end = 0 if course.end is None else course.end
        stable = tablet.settled
        if stable <= end:
            course.waits_since, course.pending_bytes = None, 0
            return
        if course.waits_since is None:
            course.waits_since = now
        course.pending_bytes = tablet.log.bytes_from(max(end, tablet.log.start_offset))
        access = self._remote.access
        old = now - course.waits_since >= access.upload_age_s
        if course.end is None or old or at_once or course.pending_bytes >= access.upload_bytes:
            all_of_it = old or at_once
            course.task = self._tasks.spawn(self._upload(slot, tablet, course, all_of_it), "upload a bucket")

    def _look_at_closed(self, slot: TabletSlot, now: float) -> None:
        """A log that was closed for being idle, while something of it waits to go up, is opened when that is due."""
        course = self._courses.get(slot.bucket)
        if course is None or course.task is not None or course.waits_since is None or now < course.next_at:
            return
        if now - course.waits_since >= self._remote.access.upload_age_s:
            course.task = self._tasks.spawn(self._open(slot, course), "open a log that is to be uploaded")

    async def _open(self, slot: TabletSlot, course: BucketCourse) -> None:
        async with self._working(slot, course):
            await wait_for(slot.opened(patient=True))

    @asynccontextmanager
    async def _working(self, slot: TabletSlot, course: BucketCourse) -> AsyncIterator[None]:
        """Surrounds the task of a bucket: what fails in it is tried again later."""
        slot.readers += 1
        try:
            async with self._turns:
                yield
            course.error, course.pause_s = "", 0.0
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._failed(course, error)
        finally:
            slot.readers -= 1
            course.task = None

    async def _upload(self, slot: TabletSlot, tablet: Tablet, course: BucketCourse, all_of_it: bool) -> None:
        async with self._working(slot, course):
            await self._owner.check()
            if course.end is None:
                course.end = (await self._remote.loop.run(self._remote.of(slot.bucket).known())).end
                if not all_of_it:
                    return  # now it is known how much there is to do
            await self._stretches(slot, tablet, course, all_of_it)

    async def _stretches(
        self, slot: TabletSlot, tablet: Tablet, course: BucketCourse, all_of_it: bool
    ) -> None:
        target = tablet.settled
        if tablet.log.synced_end < target and not tablet.replicated:
            await durable(tablet, self._commit)
        while slot.tablet is tablet and tablet.leading:
            progress = await self._step(slot, tablet, course)
            course.end, course.error = progress.end_offset, ""
            self._remote.tell(tablet, self._remote.of(slot.bucket).past)
            self.facts.uploaded(progress.bytes)
            course.pending_bytes = tablet.log.bytes_from(max(course.end, tablet.log.start_offset))
            if progress.again:
                continue
            enough = course.pending_bytes >= self._remote.access.upload_bytes
            if course.end >= target or not progress.bytes or not (all_of_it or enough):
                break
        if course.end is not None and course.end >= target:
            course.waits_since = None

    async def _step(self, slot: TabletSlot, tablet: Tablet, course: BucketCourse) -> Progress:
        goal = self._goal(tablet)
        return await self._remote.loop.run(self._upload_of(slot, course, goal).step(goal))

    def _upload_of(self, slot: TabletSlot, course: BucketCourse, goal: UploadGoal) -> BucketUpload:
        if course.upload is None or not course.upload.fits(goal):
            log = self._remote.of(slot.bucket)
            course.upload = BucketUpload(log, goal, self._remote.threads, self.new_id)
        return course.upload

    def _goal(self, tablet: Tablet) -> UploadGoal:
        bucket, catalog = tablet.bucket, self._view.catalog
        facts, place = self._tables.of(bucket.table_id), lake_place(catalog, bucket)
        now_ms = self._clock.now_ms()
        return UploadGoal(
            tablet,
            stable=min(tablet.settled, tablet.log.synced_end),
            size=self._remote.access.upload_bytes,
            about=about_bucket(facts.table, bucket, catalog),
            layout_of=facts.layout_of,
            lake_offset=0 if place is None else place.offset,
            now_ms=now_ms,
            writers_from_ms=now_ms - self._writer_expiry_ms,
        )

    def new_id(self) -> str:
        """An id that nobody uses again."""
        return self._randomness.token(ID_BYTES).hex()

    def _failed(self, course: BucketCourse, error: Exception) -> None:
        """Try again later; who was fenced, or has another log, only after a long time."""
        final = isinstance(error, Fenced)
        course.pause_s = PAUSE_MAX_S if final else min(max(PAUSE_S, 2 * course.pause_s), PAUSE_MAX_S)
        course.next_at = self._clock.monotonic() + course.pause_s
        if course.upload is not None:
            course.upload = None  # claim anew: nobody knows what became of the last manifest
        self.facts.failed()
        what = error.message if isinstance(error, StromError) else f"{type(error).__name__}: {error}"
        if what != course.error:
            course.error = what
            unknown = None if isinstance(error, StromError | OSError) else error
            logger.warning("bucket %s is not uploaded: %s", course.bucket, what, exc_info=unknown)
