"""The state of a table's lake as rows: its snapshots, and how far it holds each bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strom.client.admin.lake_admin import LakeAdmin
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.cut import cut_table
from strom.client.plan.log_plan import buckets_of
from strom.model.lake.lake_types import BUCKET, OFFSET, TIMESTAMP
from strom.model.schema import Schema

if TYPE_CHECKING:
    from strom.lake.read.warehouses import Warehouses

OWN_COLUMNS = (BUCKET, OFFSET, TIMESTAMP)

OFFSET_COLUMNS = pa.schema(
    [
        ("partition", pa.string()),
        ("bucket", pa.int32()),
        ("lake_offset", pa.int64()),
        ("lake_epoch", pa.int32()),
        ("log_start", pa.int64()),
        ("log_end", pa.int64()),
        ("pending", pa.int64()),
    ]
)
SNAPSHOT_COLUMNS = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("parent_id", pa.int64()),
        ("committed_at", pa.timestamp("ms", "UTC")),
        ("operation", pa.string()),
        ("rows", pa.int64()),
        ("files", pa.int64()),
        ("delete_files", pa.int64()),
        ("bytes", pa.int64()),
        ("round", pa.string()),
        ("current", pa.bool_()),
    ]
)


def lake_schema_of(schema: Schema) -> pa.Schema:
    """The columns of ``t$lake``: the table's, then the origin of each row."""
    own = [
        pa.field(BUCKET, pa.int32(), nullable=False),
        pa.field(OFFSET, pa.int64(), nullable=False),
        pa.field(TIMESTAMP, pa.timestamp("us", "UTC")),
    ]
    return pa.schema([*schema.to_arrow(), *own])


async def offset_rows(cluster: Cluster, table: TableInfo) -> pa.Table:
    """One row for every bucket that the lake or a server has; ``pending`` rows are not in the lake yet."""
    record = (await LakeAdmin(cluster).describe(table)).record
    tiered = dict(record.offsets) if record is not None else {}
    names: dict[int, str] = dict(record.partitions) if record is not None else {}
    partitions = await cluster.partitions(table) if table.partitioned else None
    buckets = [bucket for bucket, _ in buckets_of(table, partitions)]
    if partitions is not None:
        names |= {one.partition_id: one.name for one in partitions}
        await cluster.find_leaders(table, [one.partition_id for one in partitions])
    ends = await cut_table(cluster, table, buckets) or {}
    found = []
    for key in sorted(
        {(b.partition_id, b.bucket) for b in buckets} | set(tiered), key=lambda k: (k[0] or -1, k[1])
    ):
        place = tiered.get(key)  # type: ignore[call-overload]
        cut = next((cut for b, cut in ends.items() if (b.partition_id, b.bucket) == key), None)
        low = 0 if place is None else place.offset
        found.append(
            {
                "partition": None if key[0] is None else names.get(key[0]),
                "bucket": key[1],
                "lake_offset": None if place is None else place.offset,
                "lake_epoch": None if place is None else place.epoch,
                "log_start": None if cut is None else cut.start,
                "log_end": None if cut is None else cut.end,
                "pending": None if cut is None else max(0, cut.end - max(low, cut.start)),
            }
        )
    return pa.Table.from_pylist(found, schema=OFFSET_COLUMNS)


async def snapshot_rows(cluster: Cluster, warehouses: Warehouses, table: TableInfo) -> pa.Table:
    """One row for every snapshot that the lake keeps, oldest first."""
    facts = await LakeAdmin(cluster).describe(table)
    if facts.record is None or facts.snapshot_id is None:
        return SNAPSHOT_COLUMNS.empty_table()
    found = await warehouses.snapshots(facts, table)
    rows = [{**one.facts(), "current": one.snapshot_id == facts.snapshot_id} for one in found]
    return pa.Table.from_pylist(rows, schema=SNAPSHOT_COLUMNS)
