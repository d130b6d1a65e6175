"""Whether a changelog can be read from its beginning: the lake keeps rows of a primary-key table, not its changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from strom.client.admin.lake_admin import LakeAdmin
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.log_place import EARLIEST
from strom.client.plan.log_plan import buckets_of
from strom.client.plan.offsets import Offsets
from strom.client.plan.partition_choice import PartitionChoice, choose_partitions
from strom.errors import Expired, InvalidRequest

Missing = Literal["error", "skip"]
"""What to do when the servers no longer have the beginning of a tiered table: read it from the lake or raise an error;
or skip it."""


def check_missing(missing: str) -> None:
    """Reject any other value."""
    if missing not in ("error", "skip"):
        raise InvalidRequest(f"missing is 'error' or 'skip', not {missing!r:.60}", missing=str(missing)[:60])


async def check_beginning(
    cluster: Cluster,
    table: TableInfo,
    partitions: PartitionChoice | Sequence[PartitionChoice] | None = None,
) -> None:
    """Raise Expired when the servers no longer have all changes."""
    chosen = None
    if table.partitioned:
        existing = await cluster.partitions(table)
        await _check_partitions(cluster, table, {one.partition_id for one in existing})
        chosen = choose_partitions(table.description, existing, partitions)
        await cluster.find_leaders(table, [one.partition_id for one in chosen])
    buckets = list(buckets_of(table, chosen))
    first = await Offsets(cluster, table).at(EARLIEST, buckets)
    for bucket, name in buckets:
        if first[bucket] > 0:
            where = f"bucket {bucket.bucket}" + (f" of partition {name}" if name else "")
            raise gone(str(table.path), f"in {where} it begins at offset {first[bucket]}")


async def _check_partitions(cluster: Cluster, table: TableInfo, existing: set[int]) -> None:
    record = (await LakeAdmin(cluster).describe(table)).record
    if record is None:
        return
    for number, name in record.partitions.items():
        if number not in existing and number not in record.dropped:
            raise gone(str(table.path), f"partition {name} is in the lake alone")


def gone(table: str, where: str) -> Expired:
    """The error for a changelog whose beginning is gone."""
    return Expired(
        f"the changelog of {table} does not reach back to its beginning: {where}, and what changed before is no longer "
        "kept (table.log.ttl; the lake has rows, and no changes). Begin with the rows, scan(), and go on from the "
        "offsets of its plan(); or say missing='skip' (--skip-missing; in Spark .option('failOnDataLoss', 'false'))",
        missing=where,
    )
