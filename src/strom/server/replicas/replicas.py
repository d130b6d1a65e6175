"""All copies of this server: taken and given up as the entries of their buckets say, leading or following.

The catalog's entries decide (R2). A bucket whose entry names this server has a copy here, in a folder that is named by
the placement of the assignment; when the assignment ends, the copy and its folder go (R19).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

from strom.coordinator import commands
from strom.coordinator.new_copies import promise_of
from strom.errors import StorageOffline, UnknownBucket
from strom.model.bucket import BucketId
from strom.protocol.api_keys import COPY_BASE, COPY_STAGE, PULL
from strom.protocol.messages.replication import (
    CopyBaseRequest,
    CopyBaseResponse,
    CopyStageRequest,
    CopyStageResponse,
    PullRequest,
    PullResponse,
)
from strom.replication.followership import Followership
from strom.replication.member import CopyPromise
from strom.replication.registration import DataDisk
from strom.replication.role import FollowEpoch
from strom.runtime.clock import Clock
from strom.runtime.files import Files
from strom.runtime.tasks import Offload, Tasks
from strom.server.background.checkpoints import Checkpoints
from strom.server.background.group_commit import GroupCommit
from strom.server.replicas.base_copying import BaseCopying, CopyRate
from strom.server.replicas.base_holds import BaseHolds
from strom.server.replicas.base_serving import BaseServing
from strom.server.replicas.bucket_replica import BucketReplica
from strom.server.replicas.copy_home import CopyHome
from strom.server.replicas.following import FollowerNeeds, FollowingBucket
from strom.server.replicas.proposals import Proposals, Proposed
from strom.server.replicas.pull_loop import PullLoop
from strom.server.replicas.pull_sessions import PullSessions
from strom.server.replicas.replica_settings import ReplicaSettings
from strom.server.replicas.stage_mirroring import StageMirroring
from strom.server.tablets.catalog_view import CatalogChange, CatalogView
from strom.server.tablets.tablet_slot import TabletSlot
from strom.server.tablets.tablets import Tablets
from strom.tablet.tablet import Tablet

ASK_S = 30.0
"""How long another server may take for a piece of a file."""

logger = logging.getLogger(__name__)

AskServer = Callable[[int, Any, Any, float], Awaitable[Any]]
"""Makes an inner call to a tablet server: its id, the call, the request, the time in seconds."""


class Replicas:
    """The copies of one tablet server. Belongs to the loop."""

    def __init__(
        self,
        home: CopyHome,
        tablets: Tablets,
        view: CatalogView,
        commit: GroupCommit,
        checkpoints: Checkpoints,
        readers: Offload,
        copiers: Offload,
        files: Files,
        clock: Clock,
        settings: ReplicaSettings,
        ask: AskServer,
        small_calls_about: Callable[[], bool],
    ) -> None:
        """``copiers`` read and write base files, behind everything that is served. ``small_calls_about``: whether
        clients make small calls here."""
        self.home = home
        self.clock = clock
        self.holds = BaseHolds(clock, hold_s_max=settings.copy_hold_ms_max / 1000)
        self._tablets = tablets
        self._view = view
        self._commit = commit
        self._settings = settings
        self._ask = ask
        self._tasks = Tasks()
        self._replicas: dict[BucketId, BucketReplica] = {}
        self._early: set[BucketId] = set()
        """Buckets whose table is not there yet, or not any more."""
        self._loops: dict[int, PullLoop] = {}
        self._asks: Iterator[int] = count(1)
        self._numbers: Iterator[int] = count(1)
        self._stopping = False
        self._failed_disks: set[DataDisk] = set()
        self.on_disk_failed: Callable[[DataDisk, StorageOffline], None] | None = None
        """Called once for a disk that failed: what is on it is not in sync any more (R24)."""
        self.sessions = PullSessions(
            self._replicas.get,
            readers,
            self._tasks,
            clock,
            small_calls_about,
            bytes_max=settings.pull_bytes_max,
        )
        self.proposals = Proposals(
            lambda: [one for one in self._replicas.values() if one.leading is not None],
            lambda: view.catalog.registrations,
            self._propose,
            self.sessions.heard_at,
            self.sessions.asks,
            clock,
            lag_s=settings.lag_ms_max / 1000,
        )
        copying = BaseCopying(
            home.server_id,
            tablets,
            files,
            copiers,
            self._tasks,
            self._ask_base,
            CopyRate(clock, settings.copy_bytes_per_s),
        )
        self._needs = FollowerNeeds(
            commit, checkpoints, clock.now_ms, self.look, copying.begin, small_calls_about
        )
        self.bases = BaseServing(self.find, self.holds, readers, copiers)
        view.watch(self._changed)

    def __iter__(self) -> Iterator[BucketReplica]:
        """Every copy of this server."""
        return iter(list(self._replicas.values()))

    def find(self, bucket: BucketId) -> BucketReplica | None:
        """The copy of a bucket; None if this server has none."""
        return self._replicas.get(bucket)

    def start(self) -> None:
        """Take up all copies that the catalog gives to this server."""
        for bucket in self._view.catalog.replicas.on(self.home.server_id):
            self._read(bucket)
        self._tasks.spawn(self.proposals.run(), "propose in-sync sets")
        self._tasks.spawn(self._sync_all(), "sync copies")
        self._tasks.spawn(self.bases.tidy(), "give up bases that nobody copies")

    def finish_waiting(self) -> None:
        """Answer waiting pulls: the listeners are about to close."""
        self.sessions.stop()

    async def close(self) -> None:
        """Stop leading and following; the tablets are closed afterwards."""
        self._stopping = True
        self.sessions.stop()
        for replica in self:
            replica.close()
        await self._tasks.close()

    # --- the catalog -----------------------------------------------------------------------------------------

    def _changed(self, change: CatalogChange) -> None:
        touched = set(change.touched.buckets)
        for table_id in (*change.tables, *(one.table_id for one in change.partitions)):
            touched.update(self._tablets.copies_of(table_id))
            touched.update(one for one in self._early if one.table_id == table_id)
        for bucket in sorted(touched, key=str):
            self._read(bucket)

    def _read(self, bucket: BucketId) -> None:
        catalog = self._view.catalog
        found = catalog.versioned_entry(bucket)
        placement = 0 if found is None else found[0].placement_of(self.home.server_id)
        self._early.discard(bucket)
        if placement and not catalog.has_bucket(bucket):
            # Entries are put before their table, and deleted after it.
            self._early.add(bucket)
            placement = 0
        replica = self._replicas.get(bucket)
        if replica is not None and replica.placement != placement:
            self._give_up(replica)
            replica = None
        if found is None or not placement or self._stopping:
            return
        if replica is None:
            slot = self._tablets.take_copy(bucket, placement)
            replica = self._replicas[bucket] = BucketReplica(slot, placement, self)
            slot.role = replica
        replica.read(*found)

    def _give_up(self, replica: BucketReplica) -> None:
        """R19: this copy was made for an assignment that has ended."""
        logger.info("bucket %s: copy %d is removed", replica.bucket, replica.placement)
        replica.close()
        del self._replicas[replica.bucket]
        self._tablets.drop_copy(replica.slot, replica.placement)

    def look(self) -> None:
        """Look for changes of the metadata."""
        self._view.fresh()

    def promise(self, bucket: BucketId) -> CopyPromise:
        """What the bucket's table promises."""
        catalog = self._view.catalog
        table = catalog.table_by_id(bucket.table_id)
        if table is None:
            raise UnknownBucket(f"there is no bucket {bucket}", bucket=str(bucket))
        return promise_of(catalog, table.description)

    async def _propose(self, proposed: Proposed) -> int:
        done: int = await self._view.perform(commands.change_in_sync_sets, proposed)
        return done

    # --- leading ---------------------------------------------------------------------------------------------

    def wake(self, bucket: BucketId, urgent: bool) -> None:
        """There is something new for the followers of a bucket."""
        self.sessions.moved(bucket, urgent)

    def took_over(self, bucket: BucketId) -> None:
        """This server leads a bucket from now on."""
        self.sessions.led(bucket)

    def left(self, bucket: BucketId, tablet: Tablet) -> None:
        """This server does not lead a bucket any more."""
        self.sessions.left(bucket)
        self.bases.left(bucket, tablet)

    def guard(self, tablet: Tablet) -> None:
        """Refuse writes if the lake is ahead of the copy that begins to lead."""
        self._tablets.guard(tablet)

    # --- following -------------------------------------------------------------------------------------------

    def follow(
        self,
        slot: TabletSlot,
        placement: int,
        step: FollowEpoch,
        tablet: Tablet,
        *,
        lost: bool,
    ) -> FollowingBucket:
        """Begin to follow a leader."""
        promise = self.promise(slot.bucket)
        member = self.home.member(slot.bucket, placement, promise.durability)
        holds_stages = bool(tablet.stages.sealed_ids())
        followership = Followership(step.epoch, member, promise, self._asks, holds_stages=holds_stages)
        mirroring = StageMirroring(
            slot,
            followership.stages,
            partial(self._ask_stage, slot.bucket, step),
            self._commit,
            self._tasks,
        )
        following = FollowingBucket(
            slot, tablet, step.leader, followership, self._needs, mirroring, lost=lost
        )
        self._loop(step.leader).follow(following)
        return following

    def unfollow(self, following: FollowingBucket) -> None:
        """Stop following."""
        following.stop()
        self._loop(following.leader_id).give_up(following)

    def cut_from(self) -> list[int]:
        """The leaders that are followed here and have not been reached for longer than a copy in sync may be behind."""
        now, lag_s = asyncio.get_running_loop().time(), self._settings.lag_ms_max / 1000
        return sorted(one for one, loop in self._loops.items() if loop.unreached_s(now) > lag_s)

    def _loop(self, leader_id: int) -> PullLoop:
        loop = self._loops.get(leader_id)
        if loop is None:
            loop = self._loops[leader_id] = PullLoop(
                self.home.server_id,
                self.home.incarnation,
                partial(self._pull, leader_id),
                self._numbers,
                self._settings,
                self._tasks,
                f"tablet server {leader_id}",
            )
        return loop

    async def _pull(self, leader_id: int, request: PullRequest, timeout_s: float) -> PullResponse:
        response: PullResponse = await self._ask(leader_id, PULL, request, timeout_s)
        return response

    async def _ask_stage(
        self, bucket: BucketId, step: FollowEpoch, stage_id: bytes, position: int, max_bytes: int
    ) -> CopyStageResponse:
        request = CopyStageRequest(
            table_id=bucket.table_id,
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket,
            leader_epoch=step.epoch,
            stage_id=stage_id,
            position=position,
            max_bytes=max_bytes,
        )
        response: CopyStageResponse = await self._ask(step.leader, COPY_STAGE, request, ASK_S)
        return response

    async def _ask_base(self, leader_id: int, request: CopyBaseRequest) -> CopyBaseResponse:
        response: CopyBaseResponse = await self._ask(leader_id, COPY_BASE, request, ASK_S)
        return response

    async def _sync_all(self) -> None:
        """Sync what nobody waits for, so that a loss of power of all copies loses little (R23); and look whether a disk
        failed (R24)."""
        while True:
            await asyncio.sleep(self._settings.sync_every_ms / 1000)
            for replica in self:
                tablet = replica.slot.tablet
                if tablet is not None and tablet.durability == "os" and tablet.online:
                    self._commit.request(tablet)
                elif tablet is not None and isinstance(tablet.error, StorageOffline):
                    self._disk_failed(self.home.disk_of(replica.bucket), tablet.error)

    def _disk_failed(self, disk: DataDisk, error: StorageOffline) -> None:
        if disk not in self._failed_disks:
            self._failed_disks.add(disk)
            logger.error("disk %s failed: %s; its copies are out of use", disk.disk, error)
            if self.on_disk_failed is not None:
                self.on_disk_failed(disk, error)
