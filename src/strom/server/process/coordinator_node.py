"""The coordinator's part of a process: the catalog's calls, partitions by time, sinks."""

from __future__ import annotations

from collections.abc import Sequence

from strom.coordinator.limits import DecisionLimits
from strom.model.lake.lake import LakeConfig
from strom.runtime.settings import Settings
from strom.runtime.tasks import Tasks
from strom.runtime.world import World
from strom.server.background.auto_partitions import AutoPartitions
from strom.server.background.clock_watch import ClockWatch
from strom.server.background.decision_rollout import Apply, DecisionRollout
from strom.server.background.one_shot_sinks import OneShotSinks
from strom.server.calls.catalog.databases import DatabaseChanges
from strom.server.calls.catalog.partitions import PartitionChanges
from strom.server.calls.catalog.tables import TableChanges
from strom.server.calls.cut import SnapshotCalls
from strom.server.calls.dispatch import CallGroup
from strom.server.calls.lake.lake import LakeCalls
from strom.server.calls.publish.sinks import SinkCalls
from strom.server.status.status import TabletServers, ends_of
from strom.server.tablets.catalog_view import CatalogView

REPLICATION_FACTOR = "default.replication.factor"
CLUSTER_FACTOR = 3
"""Copies of a bucket in a cluster, where nobody says how many."""


class CoordinatorNode:
    """One coordinator."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        folder: str,
        lake: LakeConfig,
        view: CatalogView,
        apply: Apply,
    ) -> None:
        self._tasks = Tasks()
        self._view = view
        self.rollout = DecisionRollout(view, apply, self._tasks)
        self._watch = ClockWatch(world, folder, "coordinator", trust_after_ms=settings["clock.trust-after"])
        self.sinks = SinkCalls(view, self.rollout, world.clock)
        self.lake = LakeCalls(view, self._watch.time, lake, lease_ms=settings["lake.service.lease"])
        self._one_shots = OneShotSinks(view, self.rollout, self._watch.time)
        self.partitions = AutoPartitions(
            view,
            world.clock,
            every_ms=settings["auto-partition.check.interval"],
            expiry=self._watch.time,
        )
        self.groups: Sequence[CallGroup] = (
            DatabaseChanges(view, world.clock),
            TableChanges(view, world.clock),
            PartitionChanges(view, world.clock),
            self.sinks,
            SnapshotCalls(view, self.rollout),
            self.lake,
        )
        """What a coordinator answers beside the reads of every server (``server/calls/catalog/reads.py``)."""

    def ask(self, servers: TabletServers) -> None:
        """Ask these tablet servers where buckets end."""
        self.partitions.ask_ends = self.lake.ask_ends = lambda table_id: ends_of(servers(), table_id)

    def start(self) -> None:
        """Start the background work."""
        self._tasks.spawn(self._watch.run(), "watch the clock")
        self._tasks.spawn(self.partitions.run(), "auto partitions")
        self._tasks.spawn(self._one_shots.run(), "forget one-shot sinks")
        self._view.watch(self.rollout.follow)
        self.rollout.kick()

    async def close(self) -> None:
        """Stop the background work."""
        self.rollout.end()
        await self._tasks.close()


def limits_of(settings: Settings) -> DecisionLimits:
    """The catalog's limits, from the settings."""
    replicated = settings["metadata.store"] != "embedded"
    unsaid = replicated and settings.source(REPLICATION_FACTOR) == "default"
    return DecisionLimits(
        bucket_num_max=settings["max.bucket.num"],
        partition_num_max=settings["max.partition.num"],
        bucket_count_default=settings["default.bucket.number"],
        replication_factor_default=CLUSTER_FACTOR if unsaid else settings[REPLICATION_FACTOR],
        durability_default=settings["durability"],
        replicated=replicated,
    )
