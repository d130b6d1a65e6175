"""Copies of one bucket on forgetting disks, driven as servers drive them: one leads, the others pull.

There is no network and no metadata: a test says who leads in which epoch, and who pulls when. What travels between two
copies is what their servers would send.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strom.kv.store import KeyStore
from strom.kv.versions import are_images
from strom.log.copies.pulled import PulledBatches
from strom.log.groups import Group, Origin
from strom.log.log import Log
from strom.log.settings import LogSettings
from strom.model.bucket import BucketId
from strom.record.batch import BatchLimits, split
from strom.replication.divergence import EpochEnd, cut_for
from strom.tablet.key_scan import ScanRequest
from strom.tablet.key_settings import KeySettings
from strom.tablet.key_tablet import KeyTablet
from strom.tablet.log_tablet import LogTablet
from strom.tablet.publishing import Applied, Commit, PieceForm
from strom.tablet.stages import StageLimits, StagePiece, StageStore
from strom.tablet.staging.stage_room import StageRoom
from strom.tablet.tablet import Accepted, Durability
from strom.testing.disk import ForgettingDisk, Survival

from .stage_bench import DEFINITION, LAYOUT, SETTINGS, START_MS, Row, batch_of, read_changes, rows_of

FOLDER = "data/buckets/1/-/0/p1"
BUCKET = BucketId(1, None, 0)


class Copy:
    """One copy, on a disk of its own."""

    def __init__(
        self,
        name: str,
        kind: str = "log",
        durability: Durability = "group",
        *,
        settings: LogSettings = SETTINGS,
        definition: Any = DEFINITION,
        disk: ForgettingDisk | None = None,
    ) -> None:
        self.name = name
        self.keys = kind == "keys"
        self.durability: Durability = durability
        self.settings = settings
        self.definition = definition
        self.disk = ForgettingDisk() if disk is None else disk
        self.now_ms = START_MS
        self.form = PieceForm(1, lambda schema_id: LAYOUT, read_changes if self.keys else None)
        self.tablet = self.open()

    # --- life ----------------------------------------------------------------------------------------------------

    def open(self) -> KeyTablet | LogTablet:
        durable = self.durability == "group"
        stages = StageStore.open(
            self.disk,
            FOLDER,
            durable=durable,
            limits=StageLimits(bucket_bytes_max=10**9),
            room=StageRoom(10**9),
        )
        if self.keys:
            return KeyTablet.open(
                self.disk,
                FOLDER,
                BUCKET,
                self.definition,
                durability=self.durability,
                limits=BatchLimits(),
                log_settings=self.settings,
                settings=KeySettings(lease_ms=0, snapshot_bytes=2000),
                now_ms=self.now_ms,
                stages=stages,
                replicated=True,
            )
        log = Log.open(self.disk, FOLDER, self.settings, self.now_ms, own_epochs=False)
        return LogTablet(BUCKET, log, durability=self.durability, limits=BatchLimits(), stages=stages)

    def reopen(self) -> None:
        """A clean stop and a start."""
        self.tablet.close()
        self.tablet = self.open()

    def crash(self, survival: bool | Survival = True) -> None:
        """kill -9 (True), or power loss; then a start."""
        self.disk.crash(survival)
        self.tablet = self.open()

    def replace_disk(self) -> None:
        """A new, empty disk."""
        self.disk = ForgettingDisk(record=False)
        self.tablet = self.open()

    # --- as a leader ---------------------------------------------------------------------------------------------

    def lead(self, epoch: int) -> Copy:
        self.tablet.copy.lead(epoch)
        return self

    def append(self, rows: Sequence[Row], *, writer_id: int = -1, sequence: int = -1) -> Accepted:
        """Rows are (uid, key); (None, key) deletes a key."""
        if isinstance(self.tablet, KeyTablet):
            one = read_changes(batch_of(rows, keys=True), ())
            return self.tablet.upsert(
                one.rows,
                one.deletes,
                targets=None,
                schema_id=1,
                writer_id=writer_id,
                batch_sequence=sequence,
                now_ms=self.now_ms,
            )
        batch = memoryview(batch_of(rows, keys=False, writer_id=writer_id, sequence=sequence))
        return self.tablet.append(batch, layout_of=self.form.layout_of, now_ms=self.now_ms)

    def stage(self, stage_id: bytes, *pieces: Sequence[Row]) -> None:
        """Stage rows and seal, durably."""
        for number, rows in enumerate((*pieces, ())):
            records = memoryview(batch_of(rows, keys=self.keys)) if rows else memoryview(b"")
            piece = StagePiece(stage_id, "sink", 7, 60_000, number, (), records, seal=not rows)
            self.tablet.stage_piece(piece, form=self.form, now_ms=self.now_ms)
        self.sync_stages()

    def publish(self, number: int, *stage_ids: bytes, overwrite: bool = False) -> Applied:
        """Publish stages as one group."""
        commit = Commit(Origin(number, "sink", number, overwrite), stage_ids)
        return self.tablet.apply([commit], form=self.form, now_ms=self.now_ms)

    def group(self, number: int, *pieces: Sequence[Row], overwrite: bool = False) -> Applied:
        """Stage rows and publish them as one group."""
        stage_id = number.to_bytes(16, "big")
        self.stage(stage_id, *pieces)
        applied = self.publish(number, stage_id, overwrite=overwrite)
        self.tablet.stages.drop([stage_id])
        return applied

    # --- as a follower -------------------------------------------------------------------------------------------

    def follow(self) -> Copy:
        self.tablet.copy.follow()
        return self

    def pull(self, leader: Copy, max_bytes: int = 1 << 20) -> bool:
        """One question and its answer; False when there was nothing to do."""
        mine = self.tablet.copy.position()
        found = leader.tablet.copy.batches_from(mine.at, mine.epoch_before, max_bytes)
        if isinstance(found, PulledBatches):
            self.tablet.copy.append_pulled(found, now_ms=self.now_ms)
            return found.end_offset > found.base_offset
        assert isinstance(found, EpochEnd), "the base would have to be copied"
        to = cut_for(self.tablet.copy.history(), found)
        assert to is not None
        self.tablet.copy.cut_to(to)
        return True

    def catch_up(self, leader: Copy, max_bytes: int = 1 << 20) -> Copy:
        while self.pull(leader, max_bytes):
            pass
        return self

    # --- durability ----------------------------------------------------------------------------------------------

    def sync(self) -> Copy:
        point = self.tablet.pending_sync()
        if point is not None:
            point.sync()
            self.tablet.synced(point)
        return self

    def sync_stages(self) -> None:
        point = self.tablet.stages.pending_sync()
        if point is not None:
            point.sync()
            self.tablet.stages.synced(point)

    # --- upkeep --------------------------------------------------------------------------------------------------

    def roll(self) -> None:
        """Seal the active segment."""
        log = self.tablet.log
        if not log._chain.active.empty:
            log._chain_writer.roll(log.end_offset)

    def work(self) -> None:
        """Background work of a primary-key bucket: carry what is settled, write a manifest."""
        tablet = self.tablet
        if not isinstance(tablet, KeyTablet):
            return
        while (job := tablet.next_job(self.now_ms)) is not None:
            job.work()
            job.finish()
        job = tablet.upkeep.snapshot_job()
        job.work()
        job.finish()

    def expire(self) -> int:
        """Retention takes all that it may; where the log starts then."""
        tablet, now_ms = self.tablet, self.now_ms + 1
        if isinstance(tablet, KeyTablet):
            tablet.expire(now_ms=now_ms, ttl_ms=0, bytes_max=None)
        else:
            tablet.log.expire(now_ms=now_ms, ttl_ms=0, bytes_max=None, keep_from=tablet.droppable())
        return tablet.log.start_offset

    # --- what is there -------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        return self.tablet.end_offset

    def octets(self, until: int | None = None) -> dict[int, bytes]:
        """Every batch by its offset, as it is stored."""
        log, found = self.tablet.log, {}
        offset, until = log.start_offset, log.end_offset if until is None else until
        while offset < until:
            part = log.read(offset, until=until, max_bytes=500)
            found |= {header.base_offset: bytes(view) for header, view in split(b"".join(part.buffers))}
            offset = part.next_offset
        return found

    def epochs(self) -> dict[int, int]:
        """The epoch of each offset."""
        log = self.tablet.log
        return {offset: log.epochs.epoch_of(offset) for offset in range(log.start_offset, log.end_offset)}

    def table(self) -> dict[int, int]:
        """The live rows at the high watermark, as (key: uid)."""
        tablet, found, request = self.tablet, {}, ScanRequest()
        assert isinstance(tablet, KeyTablet)
        while True:
            part = tablet.scan(request, now_ms=self.now_ms)
            for batch in part.batches:
                found.update(rows_of(batch.rows))
            if part.done:
                return found
            request = ScanRequest(at=part.at, cursor=part.next_cursor)


def same_copies(one: Copy, other: Copy) -> None:
    """Both hold the same as far as both have it, byte for byte, and know the same."""
    assert one.end == other.end
    start = max(one.tablet.log.start_offset, other.tablet.log.start_offset)
    assert _from(start, one.octets()) == _from(start, other.octets())
    assert _from(start, one.epochs()) == _from(start, other.epochs())
    mine, its = one.tablet, other.tablet
    assert mine.epoch_before(start) == its.epoch_before(start)
    assert mine.log.groups.newest == its.log.groups.newest
    assert groups_from(start, one) == groups_from(start, other)
    assert mine.log._writers.snapshot() == its.log._writers.snapshot()
    assert mine.log._chain.newest_timestamp_ms == its.log._chain.newest_timestamp_ms


def groups_from(start: int, one: Copy) -> list[Group]:
    """The groups with offsets from ``start`` on, as a copy that starts there knows them."""
    found = one.tablet.log.groups.touching(start, one.end)
    return [group._replace(start_offset=max(start, group.start_offset)) for group in found]


def _from(start: int, found: dict[int, Any]) -> dict[int, Any]:
    return {offset: one for offset, one in found.items() if offset >= start}


def same_stores(one: Copy, other: Copy) -> None:
    """Both stores know the same of every key, whatever the way it got there."""
    stores = [copy.tablet.store for copy in (one, other) if isinstance(copy.tablet, KeyTablet)]
    assert stores[0].published == stores[1].published
    assert newest_of(stores[0]) == newest_of(stores[1])
    assert stores[0].rows.live_count == stores[1].rows.live_count


def newest_of(store: KeyStore) -> dict[int, int]:
    """The version of every live key's row, by the key's hash. Of deleted keys, a store forgets some."""
    found: dict[int, int] = {}
    for shard in range(store.index.shards):
        entries = store.index.entries(shard)
        live = are_images(entries.versions)
        found |= dict(zip(entries.hashes[live].tolist(), entries.versions[live].tolist(), strict=True))
    return found
