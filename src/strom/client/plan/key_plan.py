"""The plan of a key scan: at which instant each bucket is read, decided once, before the first row. Plain data.

Reading a plan again gives the same rows in the same order (partition, bucket, offset of the row's last change), as long
as the servers keep that instant; after that, ``Expired``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.cut import cut_table
from strom.client.plan.filters import Filter
from strom.client.plan.key_facts import BucketKeys, KeyFacts
from strom.client.plan.log_place import Key, Place, PlaceKind
from strom.client.plan.log_plan import check_place
from strom.client.plan.offsets import Offsets
from strom.client.plan.partition_choice import PartitionChoice, chosen_buckets
from strom.errors import InvalidRequest, OffsetOutOfRange
from strom.model.bucket import BucketId
from strom.runtime.units import counted


@dataclass(frozen=True)
class Instant:
    """One bucket as it was before the record at offset ``at``, limited to rows last changed in [start, end)."""

    bucket: BucketId
    partition: str | None
    at: int
    epoch: int | None
    """Of the record before ``at``; None when unknown."""
    start: int = 0
    end: int | None = None
    """None means ``at``: all rows from ``start`` on."""

    @property
    def until(self) -> int:
        """The end of the range, never None."""
        return self.at if self.end is None else self.end

    @property
    def whole(self) -> bool:
        """Whether this is all rows of the bucket."""
        return self.start == 0 and self.end is None


@dataclass(frozen=True)
class KeyScanPlan:
    """What a scan of a primary-key table reads."""

    table_id: int
    instants: tuple[Instant, ...]
    rows: int | None
    """Live rows, before filters; None for an instant of the past."""

    @property
    def offsets(self) -> dict[Key, int]:
        """The instant by (partition, bucket), usable as ``at=`` of a scan and as ``start=`` of a changelog."""
        return {(one.partition, one.bucket.bucket): one.at for one in self.instants}

    def __repr__(self) -> str:
        rows = "as of the past" if self.rows is None else f"{counted(self.rows, 'row')} before filters"
        return f"KeyScanPlan({len(self.instants)} buckets, {rows})"


class Planner:
    """Plans scans of one table."""

    def __init__(
        self,
        cluster: Cluster,
        table: TableInfo,
        where: Filter | None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None,
    ) -> None:
        self._cluster = cluster
        self._table = table
        self._where = where
        self._partitions = partitions

    async def plan(self, at: Place) -> KeyScanPlan:
        """The table at a place; ``LATEST`` is now."""
        predicate = None if self._where is None else self._where.predicate
        buckets = await chosen_buckets(self._cluster, self._table, self._partitions, predicate)
        check_place(at, buckets)
        facts = await KeyFacts(self._cluster, self._table).of([bucket for bucket, _ in buckets])
        now = at.kind is PlaceKind.LATEST
        if now:
            whole = await self._whole(buckets, facts)
            if whole is not None:
                return whole
            offsets = {bucket: one.high_watermark for bucket, one in facts.items()}
        else:
            _check_complete(at, buckets)
            offsets = await Offsets(self._cluster, self._table).at(at, buckets)
        instants = [_instant(bucket, name, offsets[bucket], facts[bucket]) for bucket, name in buckets]
        rows = sum(one.live_rows for one in facts.values()) if now else None
        return KeyScanPlan(self._table.table_id, tuple(one for one in instants if one.at > 0), rows)

    async def _whole(
        self, buckets: Sequence[tuple[BucketId, str | None]], facts: Mapping[BucketId, BucketKeys]
    ) -> KeyScanPlan | None:
        """A plan that holds whole transactions only; None when no bucket ever saw a stage: then the facts are enough.

        The cut is taken after the facts, so it notices every transaction that they include.
        """
        vector = await cut_table(self._cluster, self._table, [bucket for bucket, _ in buckets])
        if vector is None or not any(cut.grouped for cut in vector.values()):
            return None
        known = all(facts[bucket].high_watermark == vector[bucket].end for bucket, _ in buckets)
        instants = [
            Instant(bucket, name, vector[bucket].end, vector[bucket].epoch) for bucket, name in buckets
        ]
        rows = sum(one.live_rows for one in facts.values()) if known else None
        return KeyScanPlan(self._table.table_id, tuple(one for one in instants if one.at > 0), rows)


def _instant(bucket: BucketId, partition: str | None, at: int, facts: BucketKeys) -> Instant:
    if at > facts.high_watermark:
        raise OffsetOutOfRange(
            f"bucket {bucket} ends at offset {facts.high_watermark}: there is no instant {at} yet",
            bucket=bucket,
            offset=at,
            end=facts.high_watermark,
        )
    return Instant(bucket, partition, at, facts.epoch if at == facts.high_watermark else None)


def _check_complete(at: Place, buckets: Sequence[tuple[BucketId, str | None]]) -> None:
    """An instant covers every bucket: a missing one would silently lose its rows."""
    if at.kind is not PlaceKind.EACH:
        return
    for bucket, partition in buckets:
        if at.offset_in(bucket, partition) is None:
            raise InvalidRequest(f"at= says no offset for bucket {(partition, bucket.bucket)}", bucket=bucket)
