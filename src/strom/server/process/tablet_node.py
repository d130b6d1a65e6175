"""A tablet server: its tablets, the calls on them, and their background work.

It is the same whether it shares a process with the coordinator or has one of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from strom.kv.runs.run_reads import RunReads
from strom.model.lake.lake_owner import LakeOwner
from strom.rpc.budget import Budget
from strom.runtime.compiling import Compiling
from strom.runtime.memory import give_back, resident_bytes
from strom.runtime.metrics import Metrics
from strom.runtime.scheduling import CoreWait
from strom.runtime.settings import Settings
from strom.runtime.tasks import InlineOffload, Offload, Tasks, ThreadOffload
from strom.runtime.trusted_time import StampingClock
from strom.runtime.world import World
from strom.server.background.checkpoints import Checkpoints
from strom.server.background.clock_watch import ClockWatch
from strom.server.background.disk_space import DiskSpace
from strom.server.background.group_commit import GroupCommit
from strom.server.background.key_jobs import KeyJobs
from strom.server.background.memory_return import MemoryReturn
from strom.server.background.retention import Retention
from strom.server.background.stage_expiry import StageExpiry
from strom.server.calls.cut import CutCalls
from strom.server.calls.dispatch import CallGroup
from strom.server.calls.filtering import FilterLimits
from strom.server.calls.keys.bucket_lookup import KeyReads, LookupLimits
from strom.server.calls.keys.lookup_row import LookupRowCalls
from strom.server.calls.keys.lookup_rows import LookupRowsCalls
from strom.server.calls.keys.lookup_rows_fast import LookupRowsFast
from strom.server.calls.keys.peer_lookup import PeerLookupCalls
from strom.server.calls.keys.scan_rows import ScanRowsCalls
from strom.server.calls.keys.upserts import UpsertCalls
from strom.server.calls.lake.lake_resume import ResumeCalls
from strom.server.calls.log.damage import DamageCalls
from strom.server.calls.log.fetch import Fetches
from strom.server.calls.log.fetch_log import FetchLogCalls
from strom.server.calls.log.fetch_rows import FetchRowsCalls
from strom.server.calls.log.produce import ProduceCalls
from strom.server.calls.offsets import OffsetCalls
from strom.server.calls.passing import PassedOn, PassedOnCalls
from strom.server.calls.publish.stages import StageCalls
from strom.server.calls.replication import ReplicationCalls
from strom.server.calls.writes import Writes
from strom.server.folder.bucket_folders import BucketFolders
from strom.server.membership.metadata_contact import MetadataContact
from strom.server.remote.remote_access import RemoteAccess
from strom.server.remote.remote_drops import RemoteDrops
from strom.server.remote.remote_logs import RemoteLogs
from strom.server.remote.uploads import Uploads
from strom.server.replicas.copy_home import CopyHome
from strom.server.replicas.copy_watch import CopyWatch
from strom.server.replicas.replica_metrics import follow_replicas
from strom.server.replicas.replica_settings import ReplicaSettings
from strom.server.replicas.replicas import AskServer, Replicas
from strom.server.status.key_store_facts import follow_keys
from strom.server.status.status import LocalStatus
from strom.server.tablets.bulk_turns import RECENT_S, InTurns, Turns
from strom.server.tablets.catalog_view import CatalogView
from strom.server.tablets.kernels import Kernels
from strom.server.tablets.parallel_reads import ParallelReads
from strom.server.tablets.refusals import Refusals
from strom.server.tablets.table_facts import Tables
from strom.server.tablets.tablet_opening import TabletSettings
from strom.server.tablets.tablets import Tablets

LANE_THREADS = 3
SYNC_THREADS = 4
COPY_THREADS = 2


class TabletNode:
    """One tablet server."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        folders: BucketFolders,
        server_id: int,
        view: CatalogView,
        metrics: Metrics,
        budget: Budget,
        *,
        home: CopyHome | None = None,
        ask: AskServer | None = None,
        owner: LakeOwner | None = None,
    ) -> None:
        """``home`` and ``ask``: in a cluster, what this process is registered as, and how it asks other servers.

        ``owner``: the cluster and its place, by which it has its part of an object store; None: it has none.
        """
        self._world, self._settings, self._view, self._metrics = world, settings, view, metrics
        self._shared = TabletSettings.of(settings)
        self._run_reads = self._reads_of_indexes()
        self._make_threads()
        self._kernels = Kernels(
            None if isinstance(world.offload, InlineOffload) else lambda: _compiling(world),
            self._compiling_thread,
            self._tasks,
            world.clock,
        )
        turns = _turns(world, budget, metrics, self._core_wait)
        self.remote = self._remote_logs(f"{folders.roots[0]}/remote-cache-{server_id}", owner)
        self.tables = Tables(view, metrics, settings["durability"], self._kernels.check_peer_rows)
        self._watch = self._clock_watch(folders.roots[0], f"tablet-{server_id}")
        self.tablets = Tablets(
            world,
            folders,
            server_id,
            self._shared,
            view,
            self.tables,
            self._lanes,
            self._kernels,
            self._watch.time,
            InTurns(self._lanes, turns),
        )
        self._space = DiskSpace(
            world.files, folders.roots, free_bytes_min=settings["data-disk.free-bytes-min"], clock=world.clock
        )
        self.expiry = StageExpiry(
            self.tablets, self._watch.time, metrics, every_ms=settings["stage.check-interval"]
        )
        writes, self.stages, self.cuts = self._writing(turns, budget)
        readers = InTurns(world.offload, turns)
        self._fetches = Fetches(
            self.tablets,
            readers,
            max_bytes=settings["server.fetch.max-bytes"],
            refusals=Refusals(world.clock),
            crowded=lambda: budget.full,
            piece=turns.piece,
            remote=self.remote,
        )
        budget.relief.append(self._fetches.relieve)
        self._memory_return = MemoryReturn(budget, (world.offload, self._lanes), give_back, resident_bytes)
        self.groups: Sequence[CallGroup] = (
            *self._log_calls(writes),
            *self._key_calls(writes, readers, turns, budget),
            self.stages,
            self.cuts,
            ResumeCalls(self.tablets, view, self.tables, world.files, self._shared.limits),
        )
        self.replicas: Replicas | None = None
        self.inner_groups: Sequence[CallGroup] = ()
        """Calls of other tablet servers; for inner listeners."""
        if home is not None and ask is not None:
            self._replicate(home, ask, turns)
        self.status = LocalStatus(self.tablets, self.tables, view, metrics, self._space)
        if home is not None:
            self.status.in_cluster = self._in_cluster
        self.status.clock_ahead_s = lambda: self._watch.time.ahead_ms() / 1000
        self._make_upkeep()
        self.uploads = None if self.remote is None else self._uploading(self.remote, folders.roots[0])
        _follow(metrics, self.tablets, self._space)
        follow_keys(metrics, self.tablets, world.clock, self._run_reads)

    def _clock_watch(self, folder: str, name: str) -> ClockWatch:
        return ClockWatch(
            self._world,
            folder,
            name,
            trust_after_ms=self._settings["clock.trust-after"],
            metrics=self._metrics,
            tells=False,  # the coordinator does
        )

    def _remote_logs(self, cache: str, owner: LakeOwner | None) -> RemoteLogs | None:
        access = RemoteAccess.of(self._settings, owner)
        return None if access is None else RemoteLogs(self._world, access, self._metrics, cache)

    def _reads_of_indexes(self) -> RunReads:
        """Of indexes on disk: several at a time, where there are threads."""
        assert self._shared.keys.index_budget is not None
        reads = self._shared.keys.index_budget.reads
        if not isinstance(self._world.offload, InlineOffload):
            reads.read = ParallelReads()
        return reads

    def _make_threads(self) -> None:
        """The threads: for short work on tablets, for syncs, for long jobs, and for files that are copied."""
        self._tasks, self._commit_tasks = Tasks(), Tasks()
        self._lanes = _threads(self._world, LANE_THREADS)
        self._syncs = _threads(self._world, SYNC_THREADS)
        self._compiling_thread = _threads(self._world, 1)
        self._job_threads = _threads(self._world, self._settings["kv.jobs"])
        self._copy_threads = _threads(self._world, COPY_THREADS)
        self._core_wait = CoreWait() if isinstance(self._lanes, ThreadOffload) else None

    def _writing(self, turns: Turns, budget: Budget) -> tuple[Writes, StageCalls, CutCalls]:
        """What makes rows durable, shared by plain writes, stages and cuts."""
        commit = self._commit = GroupCommit(
            self._syncs, self._commit_tasks, self._metrics, workers=SYNC_THREADS
        )
        checkpoints = self._checkpoints = Checkpoints(
            self._syncs, self._commit_tasks, every_bytes=self._settings["log.checkpoint.bytes"]
        )
        clock = StampingClock(self._watch.time)
        writes = Writes(
            commit,
            checkpoints,
            self._space,
            clock,
            budget=budget,
            small_calls_about=turns.small_calls_about,
        )
        stages = StageCalls(
            self.tablets,
            self.tables,
            commit,
            checkpoints,
            self._space,
            clock,
            self._shared.limits,
            self.expiry,
            self._metrics,
        )
        return writes, stages, CutCalls(self.tablets, commit, self.remote)

    def _replicate(self, home: CopyHome, ask: AskServer, turns: Turns) -> None:
        """The copies of this server, and the calls of those who follow them."""
        replicas = self.replicas = Replicas(
            home,
            self.tablets,
            self._view,
            self._commit,
            self._checkpoints,
            self._world.offload,
            self._copy_threads,
            self._world.files,
            self._world.clock,
            ReplicaSettings.of(self._settings),
            ask,
            turns.small_calls_about,
        )
        self.inner_groups = (ReplicationCalls(replicas, self.tablets), PassedOnCalls(self.groups))
        self.groups = [PassedOn(one, self._view, home.server_id, ask) for one in self.groups]
        self._copies = CopyWatch(replicas, self._world.clock, self._settings["replica.lag.max"] / 1000)
        follow_replicas(self._metrics, replicas, self._copies)

    _copies: CopyWatch
    contact: MetadataContact | None = None
    """To the metadata of a cluster, once it is watched."""

    def _in_cluster(self) -> dict[str, Any]:
        contact = {} if self.contact is None else self.contact.facts()
        return {"now_ms": self._world.clock.now_ms(), "copies": {**self._copies.facts(), **contact}}

    def _log_calls(self, writes: Writes) -> Sequence[CallGroup]:
        """Calls on logs: those of log tables, and the changelogs of the others."""
        limits = FilterLimits.of(self._settings)
        return (
            ProduceCalls(self.tablets, self.tables, writes),
            FetchLogCalls(self._fetches, self.tables, limits),
            FetchRowsCalls(self._fetches, self.tables, limits),
            DamageCalls(self.tablets, self.tables, self._world.clock),
        )

    def _key_calls(
        self, writes: Writes, readers: Offload, turns: Turns, budget: Budget
    ) -> Sequence[CallGroup]:
        """Calls on primary-key tables, and calls on offsets, which ask scans where an instant lies."""
        world, lookups = self._world, LookupLimits.of(self._settings)
        answers = lookups.answer_bytes_max
        reads = KeyReads(self.tablets, self.tables, world.offload, world.clock, answer_bytes_max=answers)
        budget.relief.append(reads.relieve)
        scans = ScanRowsCalls(
            self.tablets,
            self.tables,
            KeyReads(self.tablets, self.tables, readers, world.clock, answer_bytes_max=answers),
            FilterLimits.of(self._settings),
            world.clock,
            max_bytes=self._settings["server.fetch.max-bytes"],
            piece=turns.piece,
        )
        return (
            OffsetCalls(self.tablets, self.tables, world.offload, world.clock, scans, self.remote),
            UpsertCalls(self.tablets, self.tables, writes, self._shared.limits),
            PeerLookupCalls(self.tablets, self.tables, reads, writes, lookups),
            LookupRowsCalls(reads, lookups, self._shared.limits),
            LookupRowsFast(reads, lookups, self._shared.limits),
            LookupRowCalls(reads, lookups),
            scans,
        )

    def _make_upkeep(self) -> None:
        """The background work; ``start`` begins it."""
        clock, settings = self._world.clock, self._settings
        self._retention = Retention(
            self.tablets,
            self.tables,
            self._view,
            self._watch.time,
            every_ms=settings["log.retention.check-interval"],
            uploaded=self.remote,
        )
        self._jobs = KeyJobs(
            self.tablets,
            self.tables,
            self._space,
            self._job_threads,
            self._commit_tasks,
            clock,
            self._metrics,
            at_once=settings["kv.jobs"],
        )

    def _uploading(self, remote: RemoteLogs, folder: str) -> Uploads:
        """What brings the logs into the object store, and what takes those of dropped tables from there."""
        uploads = Uploads(
            remote,
            self.tablets,
            self.tables,
            self._view,
            self._commit,
            self._world.clock,
            self._world.randomness,
            self._metrics,
            expiry=self._watch.time,
            writer_expiry_ms=self._settings["server.writer-id.expiration-time"],
        )
        self.status.remote, self.status.place_past = uploads.facts.summary, remote.known
        self._drops = RemoteDrops(
            remote,
            self._view,
            self._world.files,
            f"{folder}/remote-drops-{self.tablets.server_id}.json",
            self.tablets.server_id,
            self._world.clock,
            uploads.new_id,
        )
        return uploads

    def start(self) -> None:
        """Start the background work."""
        self._tasks.spawn(self._view.follow(), "follow the metadata")
        self._tasks.spawn(self.tablets.warm_up(), "open the logs")
        self._tasks.spawn(self._watch.run(), "watch the clock")
        self._tasks.spawn(self._retention.run(), "retention")
        self._tasks.spawn(self._retention.close_idle(), "close idle logs")
        self._tasks.spawn(self.status.measure_rates(), "measure rates")
        self._tasks.spawn(self._memory_return.run(), "give memory back")
        self._tasks.spawn(self._jobs.run(), "upkeep of primary-key buckets")
        self._tasks.spawn(self.expiry.run(), "stages whose leases are over")
        if self.uploads is not None:
            self._tasks.spawn(self.uploads.run(), "upload logs")
            self._tasks.spawn(self._drops.run(), "remove remote logs of dropped tables")
        self._kernels.follow(self._view)
        if self.replicas is not None:
            self.replicas.start()

    def finish_waiting(self) -> None:
        """Answer waiting fetches: the listeners are about to close."""
        self._fetches.stop()
        if self.replicas is not None:
            self.replicas.finish_waiting()

    async def close(self) -> bool:
        """Stop the background work and close every log; returns whether all of them closed."""
        self._jobs.stop()
        self._kernels.stop()
        await self._tasks.close()
        if self.uploads is not None:
            await self.uploads.close()
        if self.replicas is not None:
            await self.replicas.close()
        if self.remote is not None:
            await self._world.offload.run(self.remote.close)
        cleanly = await self.tablets.close()
        await self._commit_tasks.close()
        self._lanes.close()
        self._syncs.close()
        self._job_threads.close()
        self._copy_threads.close()
        self._compiling_thread.close()
        if self._core_wait is not None:
            self._core_wait.close()
        return cleanly


def _threads(world: World, count: int) -> Offload:
    """Threads of our own; in a simulation, work runs where the world says."""
    return (
        world.offload if isinstance(world.offload, InlineOffload) else ThreadOffload(count, background=True)
    )


def _compiling(world: World) -> Compiling:
    """Runs in a thread: its imports take half a second."""
    if world.compiling is not None:
        return world.compiling
    import strom.tablet.key_tablet  # noqa: F401  # what the first bucket needs beside the kernels
    from strom.kv.kernels.compiler_processes import KernelCompiling

    return KernelCompiling()


def _turns(world: World, budget: Budget, metrics: Metrics, waits: CoreWait | None) -> Turns:
    """While there are small calls, half of the cores are for bulk work: its clients need cores too."""
    paused = metrics.counter(
        "strom_bulk_paused_seconds_total", "Seconds that bulk work paused in favour of small calls"
    )
    return Turns(
        lambda: world.clock.monotonic() - budget.small_at < RECENT_S,
        waits.since_last if waits is not None else lambda: 0.0,
        at_once=max(1, (os.cpu_count() or 1) // 2),
        paused=paused.inc,
    )


def _follow(metrics: Metrics, tablets: Tablets, space: DiskSpace) -> None:
    metrics.gauge("strom_buckets", "Buckets that were touched").follow(lambda: len(list(tablets)))
    metrics.gauge("strom_buckets_open", "Buckets whose log is open").follow(
        lambda: sum(slot.tablet is not None for slot in tablets)
    )
    metrics.gauge("strom_buckets_offline", "Buckets whose storage failed").follow(
        lambda: sum(slot.tablet is not None and slot.tablet.error is not None for slot in tablets)
    )
    metrics.gauge("strom_rows_damaged", "Rows that were given up because nobody can read them").follow(
        lambda: sum(slot.tablet.log.damage.rows for slot in tablets if slot.tablet is not None)
    )
    metrics.gauge("strom_disk_free_bytes", "Room on the disk at the last write").follow(
        lambda: space.free_bytes
    )
    metrics.gauge("strom_disk_full", "1 while writes are refused for want of room").follow(lambda: space.full)
