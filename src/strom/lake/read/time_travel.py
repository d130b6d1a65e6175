"""Union reads limited in time: a log from one place to another, a table as of an instant or a lake snapshot.

A log is cut by offset or by commit time, which every row has in both tiers, so any retained part can be read exactly. A
primary-key table as of an instant is read from the servers while they keep it; before that, it is the newest lake
snapshot that was committed by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from strom.client.cluster.cluster import Cluster
from strom.client.lookup.lookups import Lookups
from strom.client.plan.key_plan import Instant, KeyScanPlan
from strom.client.plan.log_place import EARLIEST, LATEST, Place, PlaceKind
from strom.client.plan.log_plan import BucketRange, ScanPlan, check_place
from strom.client.plan.offsets import Offsets
from strom.client.read.key_scan import KeyScan
from strom.errors import Expired, LakeDisabled
from strom.lake.read.union_plan import BucketEnd, LakeLimits, UnionPlan
from strom.lake.read.union_planner import UnionPlanner, UnionRequest
from strom.lake.read.warehouses import Warehouses
from strom.model.bucket import BucketId

SNAPSHOT_IDS_FROM = 1 << 48
"""Integers from here on are snapshot ids, below it offsets: no bucket gets this far, and no id is this low."""


class Moment(NamedTuple):
    """A lake snapshot, or a time."""

    snapshot_id: int | None = None
    time_ms: int | None = None


def moment_of(at: object) -> Moment | None:
    """The snapshot or time in ``at=``; None when it is a place in the log."""
    if isinstance(at, int) and not isinstance(at, bool) and at >= SNAPSHOT_IDS_FROM:
        return Moment(snapshot_id=at)
    return None


async def plan_at(
    planner: UnionPlanner, warehouses: Warehouses, wanted: UnionRequest, at: Moment
) -> UnionPlan:
    """The lake alone, at a snapshot or at the newest one as of a time."""
    snapshot_id = at.snapshot_id
    if snapshot_id is None:
        assert at.time_ms is not None
        facts = await planner.facts(wanted.table)
        if facts is None or facts.record is None:
            raise LakeDisabled(f"{wanted.table.path} is not in the lake", table=str(wanted.table.path))
        snapshot_id = await warehouses.snapshot_at(facts, wanted.table, at.time_ms)
    return await planner.plan_snapshot(wanted, snapshot_id)


async def kept_instants(
    cluster: Cluster, wanted: UnionRequest, plan: UnionPlan, time_ms: int, lookups: Lookups
) -> UnionPlan | None:
    """A primary-key table as of a time, from the servers; None when they no longer keep it."""
    table = wanted.table
    if any(one.end and not one.hot for one in plan.ends):
        return None  # rows that only the lake has
    buckets = [(one.bucket, one.partition) for one in plan.ends]
    found = await Offsets(cluster, table).at(Place(PlaceKind.TIME, time_ms), buckets)
    instants = tuple(
        Instant(bucket, name, found[bucket], None) for bucket, name in buckets if found[bucket] > 0
    )
    for one in instants:
        probe = KeyScan(
            cluster,
            table,
            columns=[table.schema.primary_key[0]],
            limit=1,
            lookups=lookups,
            plan=KeyScanPlan(table.table_id, (one,), None),
        )
        try:
            await probe.to_arrow()
        except Expired:
            return None
    ends = tuple(one._replace(end=found.get(one.bucket, one.end)) for one in plan.ends)
    return UnionPlan(table.table_id, None, (), KeyScanPlan(table.table_id, instants, None), ends=ends)


async def between(
    cluster: Cluster, wanted: UnionRequest, plan: UnionPlan, start: Place, end: Place
) -> UnionPlan:
    """A log from one place to another, in both tiers."""
    if start == EARLIEST and end == LATEST:
        return plan
    assert isinstance(plan.hot, ScanPlan)
    buckets = [(one.bucket, one.partition) for one in plan.ends]
    for place in (start, end):
        check_place(place, buckets)
    there = [(one.bucket, one.partition) for one in plan.ends if one.hot]
    offsets = Offsets(cluster, wanted.table)
    starts = {} if start == EARLIEST else await offsets.at(start, there)
    ends = {} if end == LATEST else await offsets.at(end, there)  # default: where the plan ends
    ranges = [_cut(one, starts, ends) for one in plan.hot.ranges]
    high = _limits(end, plan.ends, ends)
    limits = LakeLimits(
        low=_limits(start, plan.ends, starts),
        high=high,
        after_ms=start.value if start.kind is PlaceKind.TIME else None,
        before_ms=end.value if end.kind is PlaceKind.TIME else None,
    )
    kept = ScanPlan(plan.table_id, tuple(one for one in ranges if one.rows > 0))
    reached = {**high, **ends}  # from the servers; for a lake-only bucket, as given
    last = tuple(one._replace(end=min(one.end, reached.get(one.bucket, one.end))) for one in plan.ends)
    return replace(plan, hot=kept, limits=limits, ends=last)


def _cut(one: BucketRange, starts: Mapping[BucketId, int], ends: Mapping[BucketId, int]) -> BucketRange:
    start = max(one.start, starts.get(one.bucket, one.start))
    return replace(one, start=start, end=max(start, min(one.end, ends.get(one.bucket, one.end))))


def _limits(place: Place, buckets: Sequence[BucketEnd], known: Mapping[BucketId, int]) -> dict[BucketId, int]:
    """The offset of a place in each bucket; empty where times count. ``known``: those from the servers.

    Where offsets of some buckets are given, the others start at their beginning.
    """
    match place.kind:
        case PlaceKind.TIME:
            return {}
        case PlaceKind.EARLIEST:
            return {one.bucket: 0 for one in buckets}
        case PlaceKind.LATEST:
            return {one.bucket: known.get(one.bucket, one.end) for one in buckets}
        case PlaceKind.OFFSET | PlaceKind.EACH:
            return {one.bucket: place.offset_in(one.bucket, one.partition) or 0 for one in buckets}
