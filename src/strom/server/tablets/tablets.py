"""The buckets of this server: found by id, opened when touched, closed when idle, removed when dropped.

A restart with thousands of buckets is quick because nothing is opened for it; ``warm_up`` opens them one by one in the
background, so that the first real touch is quick too and the status page knows their sizes.

In a cluster a bucket has copies on several servers. Which of them this server has, and what it does with them, is
decided by ``server/replicas``: it takes places for its copies here (``take_copy``) and gives them up (``drop_copy``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from strom.coordinator.catalog import Catalog
from strom.errors import NotLeader, ServerStopping, StromError, UnknownBucket
from strom.model.bucket import BucketId
from strom.model.table import TableEntry
from strom.runtime.clock import Clock
from strom.runtime.tasks import Offload, Tasks
from strom.runtime.world import World
from strom.server.folder.bucket_folders import BucketFolders
from strom.server.tablets.bucket_lane import Lane
from strom.server.tablets.catalog_view import CatalogChange, CatalogView
from strom.server.tablets.hold import Hold
from strom.server.tablets.kernels import Gate, Kernels
from strom.server.tablets.key_forms import key_tablet
from strom.server.tablets.lake_places import series_needed_from
from strom.server.tablets.table_facts import Tables
from strom.server.tablets.tablet_opening import TabletOpening, TabletSettings
from strom.server.tablets.tablet_slot import TabletSlot
from strom.tablet.copies.base_install import COPIED, COPYING
from strom.tablet.tablet import Tablet

OPEN_MAX = 2000
"""Logs kept open at once; beyond that, the longest unused are closed. Each holds a few file descriptors."""
IDLE_CLOSE_S = 600.0
WARM_UP_PAUSE_S = 0.002

logger = logging.getLogger(__name__)


class Tablets:
    """All buckets of one tablet server."""

    def __init__(
        self,
        world: World,
        folders: BucketFolders,
        server_id: int,
        settings: TabletSettings,
        view: CatalogView,
        tables: Tables,
        lanes: Offload,
        kernels: Kernels,
        expiry: Clock,
        bulk: Offload | None = None,
    ) -> None:
        """``expiry``: the time by which old writers are forgotten when a log is opened."""
        self.server_id = server_id
        self._world = world
        self._folders = folders
        self._opening = TabletOpening(world.files, settings, view, tables, expiry)
        self.stage_room = self._opening.stage_room
        self._view = view
        self._tables = tables
        self._lanes = lanes
        self.kernels = kernels
        self._bulk = bulk
        self._tasks = Tasks()
        self.hold = Hold()
        self._slots: dict[BucketId, TabletSlot] = {}
        self._copies_of: dict[int, dict[BucketId, None]] = {}
        """By table: the slots that are copies."""
        self._stopping = False
        view.watch(self._reconcile)

    def __iter__(self) -> Iterator[TabletSlot]:
        """Every bucket that was touched."""
        return iter(list(self._slots.values()))

    def slot(self, bucket: BucketId) -> TabletSlot:
        """The slot of a bucket that this server leads; else raises UnknownBucket or NotLeader."""
        slot = self.copy(bucket)
        if slot.role is not None:
            slot.role.check_leads()
        return slot

    def copy(self, bucket: BucketId) -> TabletSlot:
        """The slot of a bucket that this server leads or has a copy of; else raises UnknownBucket or NotLeader."""
        slot = self._slots.get(bucket)
        return slot if slot is not None else self._new_slot(bucket)

    def led(self, catalog: Catalog) -> list[BucketId]:
        """Every bucket that the catalog gives to this server."""
        return [one for table in catalog.all_tables() for one in led_by(self.server_id, table, catalog)]

    def held(self, catalog: Catalog) -> list[BucketId]:
        """Every bucket that this server has, whether it leads it or not."""
        copies = catalog.replicas.on(self.server_id)
        return copies if len(catalog.replicas) else self.led(catalog)

    def folder_of(self, bucket: BucketId) -> str:
        """Where a bucket's files lie."""
        return self._folders.path_of(bucket)

    def _new_slot(self, bucket: BucketId) -> TabletSlot:
        if self._stopping:
            raise ServerStopping("the server is going down")
        catalog = self._view.catalog
        leader = catalog.leader_of(bucket)
        if leader != self.server_id or catalog.replicas.get(bucket) is not None:
            leader = self._view.fresh().leader_of(bucket)
            taken = self._slots.get(bucket)  # a copy, which this server did not know of
            if taken is not None:
                return taken
        if leader is None:
            raise UnknownBucket(f"there is no bucket {bucket}", bucket=str(bucket))
        if leader != self.server_id or self._view.catalog.replicas.get(bucket) is not None:
            raise NotLeader(f"server {leader} leads bucket {bucket}", bucket=str(bucket), leader=leader)
        return self._make_slot(bucket, lambda: self._open(bucket))

    def _make_slot(self, bucket: BucketId, open_tablet: Callable[[], Tablet]) -> TabletSlot:
        lane = Lane(str(bucket), self._lanes, self._tasks, self._bulk, self.hold)
        slot = TabletSlot(bucket, lane, open_tablet, self._world.clock, self._gate(bucket))
        self._slots[bucket] = slot
        return slot

    # --- copies ----------------------------------------------------------------------------------------

    def take_copy(self, bucket: BucketId, placement: int) -> TabletSlot:
        """A place for a copy of a bucket, made for an assignment of this server (R19)."""
        if self._stopping:
            raise ServerStopping("the server is going down")
        assert bucket not in self._slots
        slot = self._make_slot(bucket, lambda: self._open(bucket, placement))
        self._copies_of.setdefault(bucket.table_id, {})[bucket] = None
        return slot

    def drop_copy(self, slot: TabletSlot, placement: int) -> None:
        """Give a copy up: this server has no part in the bucket any more, or another one (R19)."""
        bucket = slot.bucket
        assert self._slots.get(bucket) is slot
        del self._slots[bucket]
        copies = self._copies_of[bucket.table_id]
        del copies[bucket]
        if not copies:
            del self._copies_of[bucket.table_id]
        slot.retire()
        self._tasks.spawn(self._drop(slot, placement), f"remove a copy of bucket {bucket}")

    def copies_of(self, table_id: int) -> list[BucketId]:
        """The copies of a table's buckets that this server has."""
        return list(self._copies_of.get(table_id, ()))

    def folder_of_copy(self, bucket: BucketId, placement: int) -> str:
        """Where the files of a copy lie; 0: of a bucket that has no copies elsewhere."""
        folder = self.folder_of(bucket)
        return f"{folder}/p{placement}" if placement else folder

    def _gate(self, bucket: BucketId) -> Gate | None:
        table = self._tables.of(bucket.table_id).table
        return self.kernels.gate(table) if table.schema.primary_key else None

    def _open(self, bucket: BucketId, placement: int = 0) -> Tablet:
        """In the bucket's lane. ``placement``: of a copy; 0 when there are no others."""
        folder = self.folder_of_copy(bucket, placement)
        return self._opening.open(bucket, folder, replicated=placement > 0)

    def guard(self, tablet: Tablet) -> None:
        """Refuse writes to a tablet while the lake is ahead of it. In the lane."""
        self._opening.guard(tablet)

    # --- dropped buckets -------------------------------------------------------------------------------

    def _reconcile(self, change: CatalogChange) -> None:
        """Follow a change: only the buckets of what was touched are looked at, however many there are."""
        for bucket in self._touched(change):
            slot, leader = self._slots.get(bucket), change.catalog.leader_of(bucket)
            is_copy = slot is not None and slot.role is not None
            if is_copy and not change.catalog.has_bucket(bucket):
                continue  # it was dropped: ``drop_copy`` follows
            if leader == self.server_id or is_copy:
                if slot is not None:
                    self._redefine(slot)
                    self._keep_series(slot, change.catalog)
            elif slot is not None:
                del self._slots[bucket]
                self._let_go(slot, dropped=leader is None)
            elif leader is None and change.before.replicas.get(bucket) is None:
                # Not touched since the start, so there is nothing to close; its folder goes all the same.
                self._tasks.spawn(self._drop_untouched(bucket), f"remove bucket {bucket}")

    def _touched(self, change: CatalogChange) -> list[BucketId]:
        """The buckets that this server led before the change or leads now, of the tables and partitions it touched; and
        its copies of buckets of these tables."""
        found: dict[BucketId, None] = {}
        for table_id in sorted(change.tables):
            found.update(self._copies_of.get(table_id, {}))
        for catalog in (change.before, change.catalog):
            for table_id in sorted(change.tables):
                table = catalog.table_by_id(table_id)
                if table is not None:
                    found.update(dict.fromkeys(led_by(self.server_id, table, catalog)))
            for one in sorted(change.partitions):
                table, partition = (
                    catalog.table_by_id(one.table_id),
                    catalog.partition_by_id(one.partition_id),
                )
                if table is not None and partition is not None and partition.table_id == one.table_id:
                    found.update(dict.fromkeys(led_in(self.server_id, table, one.partition_id, catalog)))
        return list(found)

    def _let_go(self, slot: TabletSlot, *, dropped: bool) -> None:
        slot.retire()
        if dropped:
            self._tasks.spawn(self._drop(slot), f"remove bucket {slot.bucket}")
        else:
            self._tasks.spawn(slot.close(), f"let go of bucket {slot.bucket}")

    def _redefine(self, slot: TabletSlot) -> None:
        """Give a primary-key bucket its altered table, before any later work."""
        facts = self._tables.of(slot.bucket.table_id)
        if not facts.table.schema.primary_key or facts.keys is slot.defined_by:
            return
        if slot.tablet is None and slot.quiet:
            return  # opened later, it is opened with the table as it is then
        slot.defined_by = facts.keys
        slot.gate = self.kernels.gate(facts.table)  # a new index may need more kernels
        definition = facts.keys.definition
        try:
            redefining = slot.do(
                lambda tablet: key_tablet(tablet).redefine(definition),
                small=False,
                patient=True,
                any_role=True,
            )
        except StromError:
            return  # it cannot be opened: the next attempt opens it with the table as it is then
        if isinstance(redefining, asyncio.Future):
            redefining.add_done_callback(lambda done: _redefined(slot, done))

    def _keep_series(self, slot: TabletSlot, catalog: Catalog) -> None:
        """Tell a primary-key bucket how far the lake is; one that refuses writes checks whether it still must."""
        tablet = slot.tablet
        if tablet is not None and tablet.refused is not None:
            self._opening.guard(tablet)
        needed = series_needed_from(catalog, slot.bucket)
        if needed == slot.series_from:
            return
        slot.series_from = needed
        if slot.tablet is None and slot.quiet:
            return  # opened later, it learns it then
        if self._tables.of(slot.bucket.table_id).table.schema.primary_key:
            try:
                telling = slot.do(
                    lambda tablet: key_tablet(tablet).keep_series_from(needed), small=True, any_role=True
                )
            except StromError:
                return
            if isinstance(telling, asyncio.Future):
                telling.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _drop(self, slot: TabletSlot, placement: int = 0) -> None:
        try:
            await slot.remove(lambda: self._remove(slot.bucket, placement))
        except OSError as error:
            _left_behind(slot.bucket, error)

    async def _drop_untouched(self, bucket: BucketId) -> None:
        try:
            await self._lanes.run(self._remove, bucket)
        except OSError as error:
            _left_behind(bucket, error)

    def _remove(self, bucket: BucketId, placement: int = 0) -> None:
        """Remove a bucket's folder, or that of a copy, and its parents once they are empty and dropped too.

        A folder whose table or partition exists is never removed: a bucket may be created in it right now.
        """
        files = self._world.files
        path = self.folder_of(bucket)
        copy = self.folder_of_copy(bucket, placement)
        for folder in (copy, f"{copy}{COPYING}", f"{copy}{COPIED}") if placement else (copy,):
            files.remove_tree(folder)
        if placement and (self._view.catalog.has_bucket(bucket) or files.list(path)):
            return  # another copy of it lies there, or may be made right now
        files.remove_tree(path)
        self._folders.forget(bucket)
        above = 1 if self._view.catalog.table_by_id(bucket.table_id) is not None else 2
        for _ in range(above):
            path = path.rpartition("/")[0]
            if files.list(path):
                return
            files.remove_tree(path)

    # --- background ------------------------------------------------------------------------------------

    async def warm_up(self) -> None:
        """Open every bucket once, gently, one after the other; those that may have to wait for kernels last."""
        catalog = self._view.catalog
        led = [] if len(catalog.replicas) else self.led(catalog)[:OPEN_MAX]  # copies open themselves
        for bucket in sorted(led, key=lambda one: self._gate(one) is not None):
            try:
                await wait_for(self.slot(bucket).opened(patient=True))
            except StromError as error:
                logger.warning("bucket %s: %s", bucket, error)
            await asyncio.sleep(WARM_UP_PAUSE_S)

    async def close_idle(self) -> None:
        """Close logs that were not used for long, or that are too many."""
        now = self._world.clock.monotonic()
        opened = sorted((slot for slot in self if slot.tablet is not None), key=lambda slot: slot.touched_at)
        surplus = len(opened) - OPEN_MAX
        for index, slot in enumerate(opened):
            if slot.quiet and (index < surplus or now - slot.touched_at > IDLE_CLOSE_S):
                try:
                    await slot.close()
                except (StromError, OSError) as error:
                    logger.error("closing bucket %s failed: %s", slot.bucket, error)

    async def close(self) -> bool:
        """Close every log with a checkpoint; returns whether all went well."""
        self._stopping = True
        slots = list(self)  # one that is dropped meanwhile leaves the others' results in place
        results = await asyncio.gather(*(slot.close() for slot in slots), return_exceptions=True)
        for slot, result in zip(slots, results, strict=True):
            if isinstance(result, BaseException):
                logger.error("closing bucket %s failed: %s", slot.bucket, result)
        await self._tasks.close()
        return not any(isinstance(result, BaseException) for result in results)


def _redefined(slot: TabletSlot, done: asyncio.Future[None]) -> None:
    if not done.cancelled() and done.exception() is not None:
        slot.defined_by = None
        if isinstance(done.exception(), UnknownBucket):
            return  # it was dropped in the meantime
        logger.error("bucket %s could not take a change of its table: %s", slot.bucket, done.exception())


def _left_behind(bucket: BucketId, error: OSError) -> None:
    """The next start removes it."""
    logger.warning("bucket %s was dropped, but its folder could not be removed: %s", bucket, error)


def led_by(server_id: int, table: TableEntry, catalog: Catalog) -> list[BucketId]:
    """The buckets of one table that a server leads."""
    if len(catalog.replicas):
        led = catalog.replicas.led_by(server_id, table.table_id)
        return [bucket for bucket in led if catalog.has_bucket(bucket)]
    if not table.partitioned:
        return led_in(server_id, table, None, catalog)
    parts = catalog.partitions_of(table.table_id)
    return [bucket for part in parts for bucket in led_in(server_id, table, part.partition_id, catalog)]


def led_in(server_id: int, table: TableEntry, partition_id: int | None, catalog: Catalog) -> list[BucketId]:
    """The buckets of one partition that a server leads; None: of a table without."""
    if len(catalog.replicas):
        return [one for one in led_by(server_id, table, catalog) if one.partition_id == partition_id]
    buckets = (BucketId(table.table_id, partition_id, number) for number in range(table.bucket_count))
    return [bucket for bucket in buckets if catalog.leader_of(bucket) == server_id]


async def wait_for(ready: Tablet | asyncio.Future[Tablet] | object) -> Tablet:
    """A tablet that may have to be opened first."""
    if isinstance(ready, Tablet):
        return ready
    tablet = await ready  # type: ignore[misc]
    assert isinstance(tablet, Tablet)
    return tablet
