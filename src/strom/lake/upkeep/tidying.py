"""What a person asks for at once of what rounds do by themselves: compaction, expiry. Beside rounds and readers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strom.client.admin.lake import LakeDoor, LakeFacts
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.lake.read.warehouses import Warehouses
from strom.lake.upkeep.care import NO_SNAPSHOT, SERVICE
from strom.model.lake.lake_upkeep import LakeUpkeep
from strom.model.properties import lake_upkeep

if TYPE_CHECKING:
    from strom.lake.iceberg.table import LakeTable
    from strom.lake.upkeep.maintenance import Upkept

RUNS_MAX = 100
"""A run writes about 2 GB anew."""


async def compact_lake(cluster: Cluster, warehouses: Warehouses, table: TableInfo) -> Upkept:
    """Everything that can be merged, and the cluster is told."""
    upkeep = replace(lake_upkeep(table.description.properties), files=1, dead_percent=1)

    def work(lake: LakeTable) -> Upkept:
        from strom.lake.upkeep.maintenance import Maintenance, Upkept

        maintenance, found = Maintenance(), Upkept()
        for _ in range(RUNS_MAX):
            done = maintenance.compact(lake, upkeep)
            found = found.and_more(done)
            if not done.more:
                break
        return found

    door, facts, lake = await _opened(cluster, warehouses, table)
    found = await cluster.world.offload.run(work, lake)
    if found.truth is not None:
        from strom.lake.rounds.reporting import readable_low, report_of

        now_ms = cluster.world.clock.now_ms()
        low = await cluster.world.offload.run(readable_low, lake, found.truth, now_ms)
        told = {**found.facts(now_ms), "delete_files": found.truth.totals.delete_files}
        report = report_of(found.truth, readable_low=low, facts=told)
        # No round is under way here: the record is replaced if it is still the one that was seen. A round that came
        # between has told what it made of the table, and the next one tells the rest.
        seen = NO_SNAPSHOT if facts.snapshot_id is None else facts.snapshot_id
        await door.report(facts.table_id, report, service_id=SERVICE, rebuild=True, replaces=seen)
    return found


async def expire_lake(cluster: Cluster, warehouses: Warehouses, table: TableInfo) -> Upkept:
    """Old snapshots, and files that none names."""
    upkeep: LakeUpkeep = lake_upkeep(table.description.properties)
    _, facts, lake = await _opened(cluster, warehouses, table)
    needed = set() if facts.snapshot_id is None else {facts.snapshot_id}

    def work() -> Upkept:
        from strom.lake.upkeep.maintenance import Maintenance

        return Maintenance().expire(lake, upkeep, needed, trusted_ms=facts.now_ms)

    return await cluster.world.offload.run(work)


async def _opened(
    cluster: Cluster, warehouses: Warehouses, table: TableInfo
) -> tuple[LakeDoor, LakeFacts, LakeTable]:
    """The lake table, to be worked at without holding up the connection's reads."""
    door = LakeDoor(cluster)
    facts = await door.describe(table)
    return door, facts, await warehouses.on_table(facts, table, lambda lake: lake)
