"""Lake-only rows of a primary-key table: of partitions that retention dropped from the servers.

Lookups go to the servers, which do not have these rows; a join that needs all rows of some keys reads these files, too.
The result names the partitions that the servers had at the start. While they still have all of these, no other rows are
lake-only. Without such a partition, catalog and storage are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from strom.client.admin.lake_admin import LakeAdmin
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.log_place import LATEST
from strom.client.plan.log_plan import buckets_of
from strom.client.plan.offsets import Offsets
from strom.errors import LakeSnapshotNotFound, PartitionNotFound
from strom.lake.files.field_ids import field_id
from strom.lake.files.file_description import ColumnStats
from strom.lake.files.file_reader import LakeFile
from strom.lake.read.union_planner import ENABLED, quarantined
from strom.lake.read.warehouses import Warehouses
from strom.model.lake.lake import LakeConfig
from strom.model.lake.lake_record import LakeRecord

LOOKS_MAX = 5

Place = tuple[str | None, int]
"""A partition's name, and a bucket."""


class LakeOnlyFile(NamedTuple):
    """A file, and statistics of some columns, by field id."""

    file: LakeFile
    columns: Mapping[int, ColumnStats]


@dataclass(frozen=True)
class LakeOnlyRows:
    """The lake-only rows at one instant. Plain data: it can be pickled and sent to a worker."""

    there: frozenset[int]
    """The ids of the partitions that the servers had."""
    ends: Mapping[Place, int] = field(default_factory=dict)
    """The lake-only buckets, and where each of them ended."""
    files: tuple[LakeOnlyFile, ...] = ()
    config: LakeConfig | None = None


async def find_lake_only_rows(
    cluster: Cluster, warehouses: Warehouses, table: TableInfo, columns: Sequence[str]
) -> LakeOnlyRows | None:
    """Find the lake-only rows. None: the table has no lake or no partitions, so the servers have all of it.

    ``columns``: those whose bounds come with every file.
    """
    if not table.partitioned or ENABLED not in table.description.properties:
        return None
    expired = False
    for left in reversed(range(LOOKS_MAX)):
        try:
            return await _looked(cluster, warehouses, table, columns, expired=expired)
        except (LakeSnapshotNotFound, PartitionNotFound) as error:
            # A snapshot expired or a partition was dropped between two calls: the record is newer now, or the lake.
            if not left:
                raise
            expired = expired or isinstance(error, LakeSnapshotNotFound)
    raise AssertionError("the last try returns or raises")


async def _looked(
    cluster: Cluster, warehouses: Warehouses, table: TableInfo, columns: Sequence[str], *, expired: bool
) -> LakeOnlyRows:
    # Before the record: a partition that retention drops is in the lake by then, up to its last row.
    there = {one.partition_id: one.name for one in await cluster.partitions(table)}
    facts = await LakeAdmin(cluster).describe(table)
    if expired and facts.record is not None:
        now = await warehouses.record_now(facts, table)
        facts = replace(facts, record=now, reason=now.reason)
    record = facts.record
    nothing = LakeOnlyRows(frozenset(there))
    if record is None or record.snapshot_id is None:
        return nothing
    gone = {
        number: name
        for number, name in record.partitions.items()
        if number not in there and number not in record.dropped
    }
    if not gone:
        return nothing
    if record.quarantined:
        raise quarantined(table, facts)
    ends = _ends(record, gone, await _again(cluster, table, there, frozenset(gone.values())))
    if not ends:
        return nothing
    wanted = {field_id(table.schema.column(name).id) for name in columns}
    files = tuple(
        LakeOnlyFile(file, {number: one for number, one in known.items() if number in wanted})
        for file, known in await warehouses.described(facts, table, record.snapshot_id)
        if file.partition_id in gone and (file.partition_name, file.bucket) in ends
    )
    return LakeOnlyRows(nothing.there, ends, files, facts.config)


async def _again(
    cluster: Cluster, table: TableInfo, there: Mapping[int, str], names: frozenset[str]
) -> dict[Place, int]:
    """Recreated partitions of these names: where their buckets end."""
    again = {number for number, name in there.items() if name in names}
    if not again:
        return {}
    partitions = [one for one in await cluster.partitions(table) if one.partition_id in again]
    await cluster.find_leaders(table, again)
    buckets = list(buckets_of(table, partitions))
    ends = await Offsets(cluster, table).at(LATEST, buckets)
    return {(name, bucket.bucket): ends[bucket] for bucket, name in buckets if bucket in ends}


def _ends(record: LakeRecord, gone: Mapping[int, str], again: Mapping[Place, int]) -> dict[Place, int]:
    """The ends, without recreated buckets that got all rows of their predecessors."""
    return {
        (gone[key.partition_id], key.bucket): place.offset
        for key, place in record.offsets.items()
        if key.partition_id is not None
        and key.partition_id in gone
        and again.get((gone[key.partition_id], key.bucket), 0) < place.offset
    }
