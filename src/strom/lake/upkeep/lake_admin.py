"""What an operator does to a table's lake: rebuild the cluster's record of it, drop it, take it over, compact, expire.

The cluster's part goes through the client, the lake's part through ``Warehouses``. The lake's libraries are imported
only when they are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strom.client.admin.admin import Admin
from strom.client.admin.lake_admin import LakeAdmin, LakeFacts
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.cut import cut_table
from strom.client.plan.log_plan import buckets_of
from strom.errors import InvalidRequest, LakeConflict, LakeSnapshotNotFound, StromError, TableNotFound
from strom.lake.read.warehouses import Warehouses
from strom.model.lake.lake import Place
from strom.model.lake.lake_owner import LakeOwner
from strom.model.lake.lake_record import LakeReport
from strom.model.lake.lake_upkeep import LakeUpkeep
from strom.model.properties import lake_upkeep
from strom.model.table import TablePath

if TYPE_CHECKING:
    from strom.lake.iceberg.catalogs import LakeCatalog
    from strom.lake.iceberg.table import LakeTable
    from strom.lake.upkeep.dropping import LakeRemnant, Remnants
    from strom.lake.upkeep.maintenance import Upkept
    from strom.lake.upkeep.rebuilding import LakeFindings

TRIES = 5
"""Attempts, while rounds keep reporting."""
SERVICE = "strom lake"
NO_SNAPSHOT = -1
COMPACTIONS_MAX = 100
"""Runs of one command. A run rewrites about 2 GB."""


@dataclass(frozen=True)
class LakeRebuild:
    """What a rebuild found; it stored the ``changes``, unless it was a dry run."""

    path: TablePath
    snapshot_id: int | None
    rows: int
    files: int
    buckets: int
    changes: tuple[str, ...]
    """Differences from the record, for people; empty: it was right."""
    rolled_back: int | None
    """The foreign snapshot that is no longer the table's head."""
    dry_run: bool
    told: tuple[str, ...] = ()
    """If no snapshot was left to roll back to: which buckets are tiered again, and which rows are lost."""

    @property
    def changed(self) -> bool:
        """Whether the record was, or without ``dry_run`` would have been, replaced."""
        return bool(self.changes)


@dataclass(frozen=True)
class LakeDrop:
    """What was, or without ``dry_run`` would have been, removed from the lake."""

    path: TablePath
    removed: tuple[LakeRemnant, ...]
    own: bool
    """Whether it includes the lake of a table that exists."""
    dry_run: bool
    others: tuple[str, ...] = ()
    """Folders of the name that nothing shows to be this cluster's: they stay."""


async def rebuild_lake(
    cluster: Cluster,
    warehouses: Warehouses,
    table: TableInfo,
    *,
    dry_run: bool = False,
    roll_back: bool = False,
) -> LakeRebuild:
    """Replace the cluster's record by what the lake itself says."""
    admin = LakeAdmin(cluster)
    for _ in range(TRIES):
        facts = await admin.describe(table)
        if facts.table_id != table.table_id:
            raise TableNotFound(f"{table.path} was dropped and recreated", table_id=table.table_id)
        servers = await _begins(cluster, table) if roll_back else {}
        found, changes = await _look(
            warehouses, facts, table, roll_back=roll_back, dry_run=dry_run, servers=servers
        )
        report = found.report
        made = LakeRebuild(
            table.path,
            report.snapshot_id,
            report.rows,
            report.files,
            len(report.offsets),
            tuple(changes),
            found.rolled_back,
            dry_run,
            found.told,
        )
        if dry_run or not changes or await _store(admin, facts, report):
            return made
    raise LakeConflict(f"rounds of {table.path} kept reporting while its record was rebuilt: try again")


async def drop_lake(
    cluster: Cluster, warehouses: Warehouses, path: TablePath, *, dry_run: bool = False
) -> LakeDrop:
    """Remove what the lake has of dropped tables of this name.

    Also the lake of the table that has the name now, if it is no longer tiered; its lake-only rows are then lost.
    """
    admin = LakeAdmin(cluster)
    config = await admin.config()
    facts, created_ms = await _facts(cluster, path)
    live_id = None if facts is None else facts.table_id

    def find(catalog: LakeCatalog) -> Remnants:
        from strom.lake.upkeep.dropping import find_remnants

        return find_remnants(catalog, path, live_id, created_ms)

    remnants = await warehouses.on_catalog(config, find)
    found = remnants.ours
    own = facts is not None and (facts.record is not None or any(one.table_id == live_id for one in found))
    off = facts is not None and not facts.enabled
    chosen = [one for one in found if off or one.table_id != live_id]
    if not chosen and not (own and off):
        raise _nothing_to_drop(path, own, remnants.others)
    for one in chosen:
        if one.table_id != live_id and await _exists(admin, one.table_id):
            raise LakeConflict(f"{path} was recreated meanwhile: look again")
    if not dry_run:
        if facts is not None and off:
            await _forget(admin, facts)
        await warehouses.on_catalog(config, lambda catalog: _remove(catalog, path, chosen))
        for one in chosen:
            warehouses.forget(one.table_id)
    return LakeDrop(path, tuple(chosen), own and off, dry_run, tuple(remnants.others))


async def take_over_lake(cluster: Cluster, warehouses: Warehouses) -> LakeOwner | None:
    """Take over a warehouse from another cluster, or from another copy of this one; the previous owner, or None.

    From then on the previous owner is refused.
    """
    config = await LakeAdmin(cluster).config()

    def work(catalog: LakeCatalog) -> LakeOwner | None:
        from strom.lake.iceberg.table_owner import take_over

        return take_over(catalog)

    return await warehouses.on_unsettled(config, work)


async def compact_lake(cluster: Cluster, warehouses: Warehouses, table: TableInfo) -> Upkept:
    """Compact everything that can be merged, and report it to the cluster."""
    upkeep = replace(lake_upkeep(table.description.properties), files=1, dead_percent=1)

    def work(lake: LakeTable) -> Upkept:
        from strom.lake.upkeep.maintenance import Maintenance, Upkept

        maintenance, found = Maintenance(), Upkept()
        for _ in range(COMPACTIONS_MAX):
            done = maintenance.compact(lake, upkeep)
            found = found.and_more(done)
            if not done.more:
                break
        return found

    admin, facts, lake = await _opened(cluster, warehouses, table)
    found = await cluster.world.offload.run(work, lake)
    if found.head is not None:
        from strom.lake.iceberg.lake_report import readable_low, report_of

        now_ms = cluster.world.clock.now_ms()
        low = await cluster.world.offload.run(readable_low, lake, found.head, now_ms)
        told = {**found.facts(now_ms), "delete_files": found.head.totals.delete_files}
        report = report_of(found.head, readable_low=low, facts=told)
        # This is not a round: the record is replaced only if it is still the one that was read. A round that came
        # between has reported its own state, and the next one reports the rest.
        seen = NO_SNAPSHOT if facts.snapshot_id is None else facts.snapshot_id
        await admin.report(facts.table_id, report, service_id=SERVICE, rebuild=True, replaces=seen)
    return found


async def expire_lake(cluster: Cluster, warehouses: Warehouses, table: TableInfo) -> Upkept:
    """Expire old snapshots, and remove files that none names."""
    upkeep: LakeUpkeep = lake_upkeep(table.description.properties)
    _, facts, lake = await _opened(cluster, warehouses, table)
    needed = set() if facts.snapshot_id is None else {facts.snapshot_id}

    def work() -> Upkept:
        from strom.lake.upkeep.maintenance import Maintenance

        return Maintenance().expire(lake, upkeep, needed, trusted_ms=facts.now_ms)

    return await cluster.world.offload.run(work)


async def _opened(
    cluster: Cluster, warehouses: Warehouses, table: TableInfo
) -> tuple[LakeAdmin, LakeFacts, LakeTable]:
    """The lake table, for work that does not block the connection's reads."""
    admin = LakeAdmin(cluster)
    facts = await admin.describe(table)
    return admin, facts, await warehouses.on_table(facts, table, lambda lake: lake)


def _remove(catalog: LakeCatalog, path: TablePath, remnants: Sequence[LakeRemnant]) -> None:
    from strom.lake.upkeep.dropping import remove_remnant

    for one in remnants:
        remove_remnant(catalog, path, one)


async def _look(
    warehouses: Warehouses,
    facts: LakeFacts,
    table: TableInfo,
    *,
    roll_back: bool,
    dry_run: bool,
    servers: Mapping[Place, int],
) -> tuple[LakeFindings, list[str]]:
    def look(lake: LakeTable) -> tuple[LakeFindings, list[str]]:
        from strom.lake.upkeep.rebuilding import differences, look

        found = look(lake, facts.record, roll_back=roll_back, dry_run=dry_run, servers=servers)
        return found, differences(facts.record, found.report)

    return await warehouses.on_table(facts, table, look)


async def _begins(cluster: Cluster, table: TableInfo) -> dict[Place, int]:
    """The first offset that the servers hold of each bucket; 0 for a primary-key table, which has every live row."""
    partitions = await cluster.partitions(table) if table.partitioned else None
    if partitions is not None:
        await cluster.find_leaders(table, [one.partition_id for one in partitions])
    named = dict(buckets_of(table, partitions))
    ends = await cut_table(cluster, table, list(named)) or {}
    keyed = table.description.has_primary_key
    return {(named[bucket], bucket.bucket): 0 if keyed else cut.start for bucket, cut in ends.items()}


async def _store(admin: LakeAdmin, facts: LakeFacts, report: LakeReport) -> bool:
    """Replace the record unless it changed meanwhile; whether it was replaced."""
    replaces = NO_SNAPSHOT if facts.snapshot_id is None else facts.snapshot_id
    refused = await admin.report(facts.table_id, report, service_id=SERVICE, rebuild=True, replaces=replaces)
    return refused is None


async def _forget(admin: LakeAdmin, facts: LakeFacts) -> None:
    """Clear the record before the files go, so that no new read is planned from it."""
    if facts.record is not None and not await _store(admin, facts, LakeReport(None, {})):
        raise LakeConflict(f"a round of {facts.path} reported meanwhile: look again")


async def _facts(cluster: Cluster, path: TablePath) -> tuple[LakeFacts | None, int | None]:
    """The table of this name and when it was created; None when there is none."""
    try:
        info = await Admin(cluster).table(path)
    except TableNotFound:
        return None, None
    return await LakeAdmin(cluster).describe(path), info.created_ms


async def _exists(admin: LakeAdmin, table_id: int) -> bool:
    try:
        await admin.describe_id(table_id)
    except TableNotFound:
        return False
    return True


def _nothing_to_drop(path: TablePath, own: bool, others: Sequence[str]) -> StromError:
    if own:
        return InvalidRequest(
            f"{path} is copied into the lake: switch that off first (strom table alter {path} --set "
            "table.datalake.enabled=false). Rows that only the lake has are lost with it",
            table=str(path),
        )
    left = ""
    if others:
        left = (
            f". {', '.join(others)} stays: no lake table of this cluster's catalog is in it, so that it may be another "
            "cluster's. If nobody needs it, remove the folder"
        )
    return LakeSnapshotNotFound(f"the lake has nothing of a table {path}{left}", table=str(path))
