"""The plan of a log scan: which offsets of which buckets, decided once, before the first row. Pure.

A plan is plain data: it can be shown, stored and sent to other processes. Reading it always gives the same rows in the
same order (partition, bucket, offset), as long as they are retained.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from strom.client.cluster.metadata import PartitionInfo, TableInfo
from strom.client.plan.log_place import Key, Place, PlaceKind
from strom.errors import Expired, InvalidRequest
from strom.model.bucket import BucketId
from strom.runtime.units import counted


@dataclass(frozen=True)
class BucketRange:
    """Offsets [start, end) of one bucket."""

    bucket: BucketId
    partition: str | None
    start: int
    end: int
    cut: tuple[int, int] | None = None
    """Where the bucket was cut when the read was planned, and the epoch of the record before: with it any copy that has
    reached the cut can be read."""
    damaged: bool = False
    """Whether offsets of the bucket are marked as damaged, so that the range may have fewer rows than offsets."""

    @property
    def rows(self) -> int:
        """The number of offsets in the range."""
        return self.end - self.start


@dataclass(frozen=True)
class ScanPlan:
    """What a scan reads."""

    table_id: int
    ranges: tuple[BucketRange, ...]

    @property
    def rows(self) -> int:
        """Rows in all ranges, before any filter."""
        return sum(one.rows for one in self.ranges)

    @property
    def exact(self) -> bool:
        """Whether ``rows`` are the rows that a scan without a filter gives; marks of damage make them fewer."""
        return not any(one.damaged for one in self.ranges)

    @property
    def offsets(self) -> dict[Key, int]:
        """Where the scan ends, by (partition, bucket), usable as ``start=`` of a tail that continues from there."""
        return {(one.partition, one.bucket.bucket): one.end for one in self.ranges}

    def __repr__(self) -> str:
        return f"ScanPlan({counted(len(self.ranges), 'bucket')}, {counted(self.rows, 'row')} before filters)"

    def limited(self, limit: int | None) -> ScanPlan:
        """The plan reduced to its first ``limit`` rows. Only correct without a filter.

        Where marks of damage leave out rows, nothing is cut off: rows are counted while they are read.
        """
        if limit is None or not self.exact:
            return self
        kept = []
        for one in self.ranges:
            take = min(limit, one.rows)
            if take > 0:
                kept.append(replace(one, end=one.start + take))
            limit -= take
        return ScanPlan(self.table_id, tuple(kept))


def buckets_of(
    table: TableInfo, partitions: Sequence[PartitionInfo] | None
) -> Iterator[tuple[BucketId, str | None]]:
    """Every bucket with its partition's name, in scan order."""
    if partitions is None:
        for bucket in range(table.bucket_count):
            yield BucketId(table.table_id, None, bucket), None
        return
    for partition in partitions:
        for bucket in range(table.bucket_count):
            yield BucketId(table.table_id, partition.partition_id, bucket), partition.name


def check_kept(
    table: TableInfo,
    first: Mapping[BucketId, int],
    last: Mapping[BucketId, int],
    ends: Mapping[BucketId, int],
) -> None:
    """Raise Expired when a bucket of a log no longer has any row that it held at an instant (``ends``).

    A first offset above 0 means that rows were deleted. When the bucket then ended where it begins now, all of its rows
    of that instant are gone, unless it has no rows at all now.
    """
    for bucket, end in ends.items():
        start = first[bucket]
        if start > 0 and (end < start or end == start < last[bucket]):
            raise Expired(
                f"{table.path} is no longer kept as it was then: its rows were overwritten, or their time to live is "
                f"over (bucket {bucket.bucket} begins at offset {start}, and ended at {end})",
                bucket=str(bucket),
                start=start,
                end=end,
            )


def plan_scan(
    table: TableInfo,
    buckets: Sequence[tuple[BucketId, str | None]],
    *,
    first: Mapping[BucketId, int],
    last: Mapping[BucketId, int],
    starts: Mapping[BucketId, int],
    ends: Mapping[BucketId, int],
    epochs: Mapping[BucketId, int] | None = None,
    damaged: Collection[BucketId] = (),
) -> ScanPlan:
    """Ranges from ``starts`` to ``ends``, clipped to what exists (``first`` to ``last``); empty ones are dropped.

    ``epochs``: of the records before ``last``, where those are a cut. ``damaged``: buckets with marks of damage.
    """
    ranges = []
    for bucket, partition in buckets:
        start = max(starts[bucket], first[bucket])
        end = min(ends[bucket], last[bucket])
        if start < end:
            epoch = None if epochs is None else epochs.get(bucket)
            cut = None if epoch is None else (last[bucket], epoch)
            ranges.append(BucketRange(bucket, partition, start, end, cut, damaged=bucket in damaged))
    return ScanPlan(table.table_id, tuple(ranges))


def check_place(place: Place, buckets: Sequence[tuple[BucketId, str | None]]) -> None:
    """Reject offsets for buckets that the table does not have."""
    if place.kind is not PlaceKind.EACH:
        return
    known: set[Key] = set()
    for bucket, partition in buckets:
        known |= {bucket, (partition, bucket.bucket)}
        if partition is None:
            known.add(bucket.bucket)
    for key in place.each:
        if key not in known:
            raise InvalidRequest(f"the table has no bucket {key!r}", bucket=repr(key))
