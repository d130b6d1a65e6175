"""The buckets this server leads: found by id, opened when touched, closed when idle, removed when dropped.

A restart with thousands of buckets is quick because nothing is opened for it; ``warm_up`` opens them one by one in the
background, so that the first real touch is quick too and the status page knows their sizes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from strom.coordinator.catalog import Catalog
from strom.errors import NotLeader, ServerStopping, StromError, UnknownBucket
from strom.log.log import Log
from strom.log.resuming import resume_at
from strom.log.settings import LogSettings
from strom.model import properties
from strom.model.bucket import BucketId
from strom.model.table import Partition, TableEntry
from strom.record.batch import BatchLimits
from strom.runtime.clock import Clock
from strom.runtime.settings import Settings
from strom.runtime.tasks import Offload, Tasks
from strom.runtime.world import World
from strom.server.folder.folder import bucket_path
from strom.server.tablets.auto_increment import BucketNumbers
from strom.server.tablets.bucket_lane import Lane
from strom.server.tablets.catalog_view import CatalogChange, CatalogView
from strom.server.tablets.hold import Hold
from strom.server.tablets.kernels import Gate, Kernels
from strom.server.tablets.key_forms import key_tablet
from strom.server.tablets.lake_places import guarded_place, namesakes_place, series_needed_from
from strom.server.tablets.table_facts import TableFacts, Tables
from strom.server.tablets.tablet_slot import TabletSlot
from strom.tablet.key_settings import KeySettings
from strom.tablet.lake_check import refusal_of
from strom.tablet.log_tablet import LogTablet
from strom.tablet.stage_room import StageRoom
from strom.tablet.stages import StageLimits, StageStore
from strom.tablet.tablet import Tablet

OPEN_MAX = 2000
"""Logs kept open at once; beyond that, the longest unused are closed. Each holds a few file descriptors."""
IDLE_CLOSE_S = 600.0
WARM_UP_PAUSE_S = 0.002

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TabletSettings:
    """What all tablets of this server share."""

    log: LogSettings
    keys: KeySettings
    limits: BatchLimits
    stages: StageLimits
    stage_bytes_max: int
    stage_number_max: int
    """Of all buckets together."""

    @classmethod
    def of(cls, settings: Settings) -> TabletSettings:
        """From the server's settings."""
        log = LogSettings(
            segment_bytes=settings["log.segment.file-size"],
            roll_ms=settings["log.segment.roll-age"],
            index_interval_bytes=settings["log.index.interval-size"],
            checkpoint_bytes=settings["log.checkpoint.bytes"],
            writer_expiry_ms=settings["server.writer-id.expiration-time"],
        )
        keys = KeySettings(
            segment_bytes=settings["kv.segment.file-size"],
            snapshot_bytes=settings["kv.snapshot.bytes"],
            snapshot_ms=settings["kv.snapshot.interval"],
            lease_ms=settings["kv.scan.lease"],
            merge_dead_share=settings["kv.merge.dead-share"] / 100,
            merge_files=settings["kv.merge.files"],
            memory_rows_max=settings["kv.memory.rows-max"],
        )
        limits = BatchLimits(
            batch_bytes_max=settings["server.request.max-bytes"],
            decompressed_bytes_max=settings["server.batch.decompressed-bytes-max"],
        )
        stages = StageLimits(
            bucket_bytes_max=settings["stage.bucket.bytes-max"], idle_ms_max=settings["stage.idle-timeout"]
        )
        return cls(log, keys, limits, stages, settings["stage.bytes-max"], settings["stage.number-max"])


class Tablets:
    """All buckets of one tablet server."""

    def __init__(
        self,
        world: World,
        folder: str,
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
        self._folder = folder
        self._settings = settings
        self._view = view
        self._tables = tables
        self._lanes = lanes
        self.kernels = kernels
        self._expiry = expiry
        self._bulk = bulk
        self.stage_room = StageRoom(settings.stage_bytes_max, settings.stage_number_max)
        self._tasks = Tasks()
        self.hold = Hold()
        self._slots: dict[BucketId, TabletSlot] = {}
        self._stopping = False
        view.watch(self._reconcile)

    def __iter__(self) -> Iterator[TabletSlot]:
        """Every bucket that was touched."""
        return iter(list(self._slots.values()))

    def slot(self, bucket: BucketId) -> TabletSlot:
        """The slot of a bucket; raises UnknownBucket or NotLeader when it has none here."""
        slot = self._slots.get(bucket)
        return slot if slot is not None else self._new_slot(bucket)

    def led(self, catalog: Catalog) -> list[BucketId]:
        """Every bucket that the catalog gives to this server."""
        return [one for table in catalog.all_tables() for one in led_by(self.server_id, table, catalog)]

    def folder_of(self, bucket: BucketId) -> str:
        """Where a bucket's files lie."""
        return bucket_path(self._folder, bucket)

    def _new_slot(self, bucket: BucketId) -> TabletSlot:
        if self._stopping:
            raise ServerStopping("the server is going down")
        leader = self._view.catalog.leader_of(bucket)
        if leader != self.server_id:
            leader = self._view.fresh().leader_of(bucket)
        if leader is None:
            raise UnknownBucket(f"there is no bucket {bucket}", bucket=str(bucket))
        if leader != self.server_id:
            raise NotLeader(f"server {leader} leads bucket {bucket}", bucket=str(bucket), leader=leader)
        lane = Lane(str(bucket), self._lanes, self._tasks, self._bulk, self.hold)
        slot = TabletSlot(bucket, lane, lambda: self._open(bucket), self._world.clock, self._gate(bucket))
        self._slots[bucket] = slot
        return slot

    def _gate(self, bucket: BucketId) -> Gate | None:
        table = self._tables.of(bucket.table_id).table
        return self.kernels.gate(table) if table.schema.primary_key else None

    def _open(self, bucket: BucketId) -> Tablet:
        """Runs in the bucket's lane."""
        facts = self._tables.of(bucket.table_id)
        # Where nobody waits for a sync, syncing a whole segment at its end would only stall writers.
        settings = replace(self._settings.log, sync_on_roll=facts.durability == "group")
        stages = StageStore.open(
            self._world.files,
            bucket_path(self._folder, bucket),
            durable=facts.durability == "group",
            limits=self._settings.stages,
            room=self.stage_room,
        )
        opened = self._open_keys if facts.table.schema.primary_key else self._open_log
        try:
            tablet = opened(bucket, facts, settings, stages)
        except BaseException:
            stages.close()  # what it found counts when it is found again
            raise
        place = guarded_place(self._view.catalog, bucket)
        tablet.refused = None if place is None else refusal_of(tablet, *place)
        _tell_recovery(facts.table.path, tablet)
        return tablet

    def _open_log(
        self, bucket: BucketId, facts: TableFacts, settings: LogSettings, stages: StageStore
    ) -> Tablet:
        folder, now_ms = bucket_path(self._folder, bucket), self._expiry.now_ms()
        log = Log.open(self._world.files, folder, settings, now_ms=now_ms)
        before = namesakes_place(self._view.catalog, bucket)
        if before is not None and log.end_offset == 0:
            # Its partition was recreated, and the lake has the rows of the old one: go on after them.
            log.close()
            resume_at(self._world.files, folder, end=0, offset=before.offset, epoch=before.epoch)
            log = Log.open(self._world.files, folder, settings, now_ms=now_ms)
        tablet = LogTablet(
            bucket, log, durability=facts.durability, limits=self._settings.limits, stages=stages
        )
        try:
            tablet.drop_overwritten()
        except BaseException:
            log.abandon()
            raise
        return tablet

    def _open_keys(
        self, bucket: BucketId, facts: TableFacts, settings: LogSettings, stages: StageStore
    ) -> Tablet:
        from strom.tablet.key_restore import install
        from strom.tablet.key_tablet import KeyTablet

        install(self._world.files, bucket_path(self._folder, bucket))
        numbers = None
        if facts.keys.auto_increment is not None:
            block = properties.number_block(facts.table.description.properties)
            numbers = BucketNumbers(
                lambda count: self._view.allocate_numbers(bucket.table_id, count), block=block
            ).take
        tablet = KeyTablet.open(
            self._world.files,
            bucket_path(self._folder, bucket),
            bucket,
            facts.keys.definition,
            durability=facts.durability,
            limits=self._settings.limits,
            log_settings=settings,
            settings=self._settings.keys,
            numbers=numbers,
            now_ms=self._expiry.now_ms(),
            stages=stages,
        )
        tablet.keep_series_from(series_needed_from(self._view.catalog, bucket))
        return tablet

    # --- dropped buckets -------------------------------------------------------------------------------

    def _reconcile(self, change: CatalogChange) -> None:
        """Follow a change: only the buckets of what was touched are looked at, however many there are."""
        for bucket in self._touched(change):
            slot, leader = self._slots.get(bucket), change.catalog.leader_of(bucket)
            if leader == self.server_id:
                if slot is not None:
                    self._redefine(slot)
                    self._keep_series(slot, change.catalog)
            elif slot is not None:
                del self._slots[bucket]
                self._let_go(slot, dropped=leader is None)
            elif leader is None:
                # Not touched since the start, so there is nothing to close; its folder goes all the same.
                self._tasks.spawn(self._drop_untouched(bucket), f"remove bucket {bucket}")

    def _touched(self, change: CatalogChange) -> list[BucketId]:
        """The buckets that this server led before the change or leads now, of the tables and partitions it touched."""
        found: dict[BucketId, None] = {}
        for catalog in (change.before, change.catalog):
            for table_id in sorted(change.tables):
                table = catalog.table_by_id(table_id)
                if table is not None:
                    found.update(dict.fromkeys(led_by(self.server_id, table, catalog)))
            for one in sorted(change.partitions):
                partition = catalog.partition_by_id(one.partition_id)
                if partition is not None and partition.table_id == one.table_id:
                    found.update(dict.fromkeys(_led_in(self.server_id, partition)))
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
                lambda tablet: key_tablet(tablet).redefine(definition), small=False, patient=True
            )
        except StromError:
            return  # it cannot be opened: the next attempt opens it with the table as it is then
        if isinstance(redefining, asyncio.Future):
            redefining.add_done_callback(lambda done: _redefined(slot, done))

    def _keep_series(self, slot: TabletSlot, catalog: Catalog) -> None:
        """Tell a primary-key bucket how far the lake is; one that refuses writes checks whether it still must."""
        tablet = slot.tablet
        if tablet is not None and tablet.refused is not None:
            place = guarded_place(catalog, slot.bucket)
            tablet.refused = None if place is None else refusal_of(tablet, *place)
        needed = series_needed_from(catalog, slot.bucket)
        if needed == slot.series_from:
            return
        slot.series_from = needed
        if slot.tablet is None and slot.quiet:
            return  # opened later, it learns it then
        if self._tables.of(slot.bucket.table_id).table.schema.primary_key:
            try:
                telling = slot.do(lambda tablet: key_tablet(tablet).keep_series_from(needed), small=True)
            except StromError:
                return
            if isinstance(telling, asyncio.Future):
                telling.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _drop(self, slot: TabletSlot) -> None:
        try:
            await slot.remove(lambda: self._remove(slot.bucket))
        except OSError as error:
            _left_behind(slot.bucket, error)

    async def _drop_untouched(self, bucket: BucketId) -> None:
        try:
            await self._lanes.run(self._remove, bucket)
        except OSError as error:
            _left_behind(bucket, error)

    def _remove(self, bucket: BucketId) -> None:
        """Remove a bucket's folder, and its parents once they are empty and dropped too.

        A folder whose table or partition exists is never removed: a bucket may be created in it right now.
        """
        files = self._world.files
        path = bucket_path(self._folder, bucket)
        files.remove_tree(path)
        above = 1 if self._view.catalog.table_by_id(bucket.table_id) is not None else 2
        for _ in range(above):
            path = path.rpartition("/")[0]
            if files.list(path):
                return
            files.remove_tree(path)

    # --- background ------------------------------------------------------------------------------------

    async def warm_up(self) -> None:
        """Open every bucket once, gently, one after the other; those that may have to wait for kernels last."""
        led = self.led(self._view.catalog)[:OPEN_MAX]
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


def _tell_recovery(table: object, tablet: Tablet) -> None:
    """Log what opening a bucket after a kill found; nothing after a clean stop."""
    report = tablet.log.report
    if report.clean or not report.bytes_scanned:
        return
    logger.info(
        "recovered %s bucket %s: %d bytes read again up to offset %d, %d bytes of unfinished batches cut off",
        table,
        tablet.bucket,
        report.bytes_scanned,
        tablet.log.end_offset,
        report.bytes_cut,
    )
    for start, end in report.holes:
        logger.error("%s bucket %s: offsets %d to %d cannot be read", table, tablet.bucket, start, end)


def _left_behind(bucket: BucketId, error: OSError) -> None:
    """The next start removes it."""
    logger.warning("bucket %s was dropped, but its folder could not be removed: %s", bucket, error)


def led_by(server_id: int, table: TableEntry, catalog: Catalog) -> list[BucketId]:
    """The buckets of one table that a server leads."""
    if table.partitioned:
        parts = catalog.partitions_of(table.table_id)
        return [bucket for partition in parts for bucket in _led_in(server_id, partition)]
    return _led(server_id, table.table_id, None, table.leaders)


def _led_in(server_id: int, partition: Partition) -> list[BucketId]:
    return _led(server_id, partition.table_id, partition.partition_id, partition.leaders)


def _led(server_id: int, table_id: int, partition_id: int | None, leaders: Sequence[int]) -> list[BucketId]:
    return [
        BucketId(table_id, partition_id, bucket)
        for bucket, leader in enumerate(leaders)
        if leader == server_id
    ]


async def wait_for(ready: Tablet | asyncio.Future[Tablet] | object) -> Tablet:
    """A tablet that may have to be opened first."""
    if isinstance(ready, Tablet):
        return ready
    tablet = await ready  # type: ignore[misc]
    assert isinstance(tablet, Tablet)
    return tablet
