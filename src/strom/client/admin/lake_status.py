"""How far a table's lake is behind: rows and seconds, bucket by bucket."""

from __future__ import annotations

from dataclasses import dataclass

from strom.client.admin.admin import Admin
from strom.client.admin.lake_admin import LakeAdmin, LakeFacts
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.errors import LagUnknown
from strom.model.lake.lake import LakeConfig, Tiered
from strom.model.lake.lake_record import LakeRecord
from strom.runtime.units import counted


@dataclass(frozen=True)
class LakeBucket:
    """One bucket: the lake holds it up to ``lake_offset``, readers of the table up to ``high_watermark``."""

    partition: str | None
    bucket: int
    lake_offset: int
    high_watermark: int
    error: str | None = None
    start_offset: int = 0

    @property
    def lag_rows(self) -> int:
        """Records that are not in the lake yet; of a primary-key table, changes. LagUnknown if it does not answer."""
        if self.error is not None:
            where = f"bucket {self.bucket}" + (f" of partition {self.partition}" if self.partition else "")
            raise LagUnknown(
                f"cannot tell how far the lake is behind {where}: {self.error}", bucket=self.bucket
            )
        return max(0, self.high_watermark - max(self.lake_offset, self.start_offset))

    @property
    def ahead(self) -> bool:
        """Whether the lake holds more than the bucket, which then takes no writes."""
        return self.error is None and self.lake_offset > self.high_watermark


@dataclass(frozen=True)
class LakeStatus:
    """A table in the lake, and how far the lake is behind now."""

    facts: LakeFacts
    buckets: tuple[LakeBucket, ...]

    @property
    def lag_rows(self) -> int:
        """Records that are not in the lake yet; LagUnknown, with the reason, if a bucket does not answer."""
        return sum(one.lag_rows for one in self.buckets)

    @property
    def lag_ms(self) -> int | None:
        """Rows older than this are in the lake; None before the first round. LagUnknown as ``lag_rows``."""
        if not self.lag_rows:
            return None if self.facts.record is None else 0
        return None if not self.facts.fresh_ms else max(0, self.facts.now_ms - self.facts.fresh_ms)

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
        try:
            rows, lag_ms = counted(self.lag_rows, "row"), self.lag_ms
            told = f"{rows} behind, never tiered"
            if lag_ms is not None:
                told = f"{rows} and {lag_ms / 1000:,.1f} s behind"
        except LagUnknown as error:
            told = error.message
        return f"LakeStatus({self.facts.path}: {self.state}, {told})"


async def lake_status(cluster: Cluster, table: TableInfo) -> LakeStatus:
    """A table's lake and how far it is behind, without reading the lake."""
    # The record first: rows written between the two requests then count as behind, not as ahead.
    facts = await LakeAdmin(cluster).describe(table)
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
            one.start_offset,
        )
        for one in status.buckets
    )
    return LakeStatus(facts, buckets)


def _held(record: LakeRecord | None, partition_id: int | None, name: str | None, bucket: int) -> Tiered:
    found = None if record is None else record.place_of(partition_id, name, bucket)
    return found or Tiered(0, -1)
