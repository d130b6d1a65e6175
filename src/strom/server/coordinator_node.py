"""The coordinator's part of a process: the catalog's calls, and partitions that come and go by time."""

from __future__ import annotations

from collections.abc import Sequence

from strom.coordinator.limits import Limits
from strom.runtime.settings import Settings
from strom.runtime.tasks import Tasks
from strom.runtime.world import World
from strom.server.background.auto_partitions import AutoPartitions
from strom.server.calls.databases import DatabaseChanges, DatabaseReads
from strom.server.calls.dispatch import CallGroup
from strom.server.calls.partitions import PartitionChanges, PartitionReads
from strom.server.calls.tables import TableChanges, TableReads
from strom.server.calls.where import WhereCalls
from strom.server.catalog_view import CatalogView


class CoordinatorNode:
    """One coordinator."""

    def __init__(self, world: World, settings: Settings, view: CatalogView) -> None:
        self._tasks = Tasks()
        self._partitions = AutoPartitions(
            view, world.clock, every_ms=settings["auto-partition.check.interval"]
        )
        self.groups: Sequence[CallGroup] = (
            DatabaseReads(view),
            DatabaseChanges(view, world.clock),
            TableReads(view),
            TableChanges(view, world.clock),
            PartitionReads(view),
            PartitionChanges(view, world.clock),
            WhereCalls(view),
        )

    def start(self) -> None:
        """Begin the work in the background."""
        self._tasks.spawn(self._partitions.run(), "auto partitions")

    async def close(self) -> None:
        """End it."""
        await self._tasks.close()


def limits_of(settings: Settings) -> Limits:
    """What the catalog allows, from the settings."""
    return Limits(
        bucket_num_max=settings["max.bucket.num"],
        partition_num_max=settings["max.partition.num"],
        bucket_count_default=settings["default.bucket.number"],
        replication_factor_default=settings["default.replication.factor"],
    )
