"""How far behind a table's lake is, for people: rows and seconds that it lacks, bucket by bucket."""

from __future__ import annotations

from dataclasses import dataclass

from strom.client.admin import Admin
from strom.client.cluster import Cluster
from strom.client.lake import LakeDoor, LakeFacts
from strom.client.metadata import TableInfo
from strom.model.lake import LakeConfig, Tiered
from strom.model.lake_record import LakeRecord


@dataclass(frozen=True)
class LakeBucket:
    """One bucket: the lake holds it up to ``lake_offset``, readers of the table up to ``high_watermark``."""

    partition: str | None
    bucket: int
    lake_offset: int
    high_watermark: int
    error: str | None = None

    @property
    def lag_rows(self) -> int:
        """Records that are not in the lake yet; of a primary-key table, changes."""
        return max(0, self.high_watermark - self.lake_offset)

    @property
    def ahead(self) -> bool:
        """Whether the lake holds more than the bucket, which then takes no writes."""
        return self.error is None and self.lake_offset > self.high_watermark


@dataclass(frozen=True)
class LakeStatus:
    """A table in the lake. ``lag_ms``: what was written longer ago than this is in the lake; None before a round."""

    facts: LakeFacts
    lag_rows: int
    lag_ms: int | None
    buckets: tuple[LakeBucket, ...]

    @property
    def state(self) -> str:
        """``off``, ``waiting``, ``active``, ``tiering`` or ``quarantined``."""
        return self.facts.state

    @property
    def config(self) -> LakeConfig:
        """Where the lake is: warehouse and catalog, for other engines."""
        assert self.facts.config is not None
        return self.facts.config

    def __repr__(self) -> str:
        behind = "never tiered" if self.lag_ms is None else f"{self.lag_ms / 1000:,.1f} s"
        return f"LakeStatus({self.facts.path}: {self.state}, {self.lag_rows:,} rows and {behind} behind)"


async def lake_status(cluster: Cluster, table: TableInfo) -> LakeStatus:
    """A table's lake and how far it is behind; the lake itself is not asked."""
    # The record first: what is written between the two questions then counts as behind, not as ahead.
    facts = await LakeDoor(cluster).describe(table)
    status = await Admin(cluster).status(table)
    ids: dict[str | None, int | None] = {None: None}
    if table.partitioned:
        ids |= {one.name: one.partition_id for one in await cluster.partitions(table)}
    buckets = tuple(
        LakeBucket(
            one.partition,
            one.bucket,
            _held(facts.record, ids.get(one.partition), one.partition, one.bucket).offset,
            one.high_watermark,
            one.error,
        )
        for one in status.buckets
    )
    lag_rows = sum(one.lag_rows for one in buckets)
    return LakeStatus(facts, lag_rows, _lag_ms(facts, lag_rows), buckets)


def _held(record: LakeRecord | None, partition_id: int | None, name: str | None, bucket: int) -> Tiered:
    found = None if record is None else record.place_of(partition_id, name, bucket)
    return found or Tiered(0, -1)


def _lag_ms(facts: LakeFacts, lag_rows: int) -> int | None:
    if not lag_rows:
        return None if facts.record is None else 0
    return None if not facts.fresh_ms else max(0, facts.now_ms - facts.fresh_ms)
