"""Plans union reads of several tables at one instant: the lake's record first, then where the buckets end.

The order matters. The record says that the lake's snapshot holds every offset below A. A bucket that is asked after
that ends at B ≥ A (or refuses: the lake is ahead of a log that lost its end; then only the lake is read). So rows below
A come from the lake and rows from A on from the log, each once, whatever rounds land meanwhile.

Neither the lake's catalog nor its storage is touched when the filter lies outside the bounds in the record, or no
chosen partition is in the lake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from strom.client.admin.lake_admin import LakeAdmin, LakeFacts
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import PartitionInfo, TableInfo
from strom.client.plan.cut import Cut, Cuts, CutTerms, cut_table, cut_tables
from strom.client.plan.dead_offsets import dead_offsets
from strom.client.plan.filters import prune
from strom.client.plan.key_plan import Instant, KeyScanPlan
from strom.client.plan.log_plan import BucketRange, ScanPlan, buckets_of
from strom.client.plan.partition_choice import PartitionChoice, choose_partitions
from strom.errors import (
    Expired,
    LakeAhead,
    LakeDisabled,
    LakeQuarantined,
    LakeSnapshotNotFound,
    OffsetOutOfRange,
    PartitionNotFound,
    StaleEpoch,
    UnsupportedVersion,
)
from strom.lake.files.bounds import may_match
from strom.lake.files.file_reader import LakeFile
from strom.lake.read.union_plan import BucketEnd, Offsets, UnionPlan, bucket_of
from strom.model.bucket import BucketId
from strom.model.filters.predicate import Predicate
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_record import LakeRecord

Tier = Literal["both", "hot", "lake"]

NO_PARTITION = -1
"""Stand-in ids, from here down, for partitions that neither the servers nor the record know any more."""
PLANS_MAX = 5
DEAD_AT_ONCE = 16
ENABLED = "table.datalake.enabled"


@dataclass(frozen=True)
class UnionRequest:
    """One table of a read. ``where`` is checked; rows that do not pass it may be left out."""

    table: TableInfo
    where: Predicate | None = None
    partitions: PartitionChoice | Sequence[PartitionChoice] | None = None
    tier: Tier = "both"


class FileLister(Protocol):
    """Finds the files of a table's lake snapshot, and reads the lake's own record."""

    async def files(
        self, facts: LakeFacts, table: TableInfo, snapshot_id: int, where: Predicate | None
    ) -> list[LakeFile]:
        """The files whose rows may pass the filter, in the order of a scan."""

    async def record_now(self, facts: LakeFacts, table: TableInfo) -> LakeRecord:
        """The record according to the lake itself."""


@dataclass
class _Chosen:
    """What is known of one table while it is planned."""

    wanted: UnionRequest
    facts: LakeFacts | None
    buckets: list[tuple[BucketId, str | None]]
    """Buckets that the servers have and the filter keeps."""
    gone: list[tuple[BucketId, str]] = field(default_factory=list)
    """Buckets of lake-only partitions."""
    wrong: LakeFacts | None = None
    """What is known of a quarantined lake, which is not read."""

    @property
    def record(self) -> LakeRecord | None:
        return None if self.facts is None else self.facts.record

    def tiered(self, bucket: BucketId) -> Tiered | None:
        """How far the lake holds a bucket; None when it holds nothing of it."""
        return _tiered(self.record, bucket)


class UnionPlanner:
    """Plans reads for one connection."""

    def __init__(self, cluster: Cluster, files: FileLister) -> None:
        self._cluster = cluster
        self._admin = LakeAdmin(cluster)
        self._files = files

    async def plan(self, wanted: Sequence[UnionRequest]) -> list[UnionPlan]:
        """Plan all tables at one instant, in whole transactions."""
        expired = False
        for left in reversed(range(PLANS_MAX)):
            chosen = list(await asyncio.gather(*(self._choose(one, expired=expired) for one in wanted)))
            try:
                vector = await self._cut(chosen)
                return list(await asyncio.gather(*(self._plan(one, vector) for one in chosen)))
            except (Expired, StaleEpoch, PartitionNotFound, LakeSnapshotNotFound) as error:
                # A round landed, a leader changed, a partition was dropped or a snapshot expired between our calls:
                # the record is newer now. Or another engine expired it, and the lake itself knows better.
                if not left:
                    raise
                expired = expired or isinstance(error, LakeSnapshotNotFound)
        raise AssertionError("the last try returns or raises")

    # --- what there is ----------------------------------------------------------------------------------------

    async def facts(self, table: TableInfo) -> LakeFacts | None:
        """What the cluster knows of a table's lake; None when it never had one."""
        if ENABLED not in table.description.properties:
            return None
        try:
            return await self._admin.describe(table)
        except UnsupportedVersion:
            return None

    async def _renewed(self, facts: LakeFacts, table: TableInfo) -> LakeFacts:
        """What is known of a lake whose snapshot expired, according to the lake itself."""
        record = await self._files.record_now(facts, table)
        return replace(facts, record=record, snapshot_id=record.snapshot_id, reason=record.reason)

    async def _choose(self, wanted: UnionRequest, *, expired: bool = False) -> _Chosen:
        table = wanted.table
        # Before the record: a partition that retention drops is in the lake by then, up to its last row.
        existing = await self._cluster.partitions(table) if table.partitioned else []
        facts: LakeFacts | None = None
        if wanted.tier == "lake":
            facts = await self._lake_facts(wanted)
        elif wanted.tier == "both":
            facts = await self.facts(table)
        if expired and facts is not None and facts.record is not None and facts.snapshot_id is not None:
            facts = await self._renewed(facts, table)
        wrong: LakeFacts | None = None
        if facts is not None and facts.record is not None and facts.record.quarantined:
            if wanted.tier != "both":
                raise quarantined(table, facts)
            facts, wrong = None, facts  # not read: the servers must have everything
        if not table.partitioned:
            choose_partitions(table.description, [], wanted.partitions)
            return _Chosen(wanted, facts, list(buckets_of(table, None)), wrong=wrong)
        gone = _gone(table, facts or wrong, existing)
        if _newest(gone) > _newest(existing):  # created and tiered since we asked
            known = {one.partition_id for one in existing}
            now = await self._cluster.partitions(table)
            existing += [one for one in now if one.partition_id not in known]
            existing.sort(key=lambda one: one.name)
            gone = _gone(table, facts or wrong, existing)
        chosen = choose_partitions(table.description, [*existing, *gone], wanted.partitions)
        if wanted.where is not None:
            chosen = prune(chosen, table.description, wanted.where)
        there = {one.partition_id for one in existing}
        hot = [one for one in chosen if one.partition_id in there]
        await self._cluster.find_leaders(table, [one.partition_id for one in hot])
        lost = [one for one in chosen if one.partition_id not in there]
        if lost and wrong is not None:
            raise quarantined(wanted.table, wrong)  # rows that only the lake has
        left = [(bucket, name) for bucket, name in buckets_of(table, lost) if name is not None]
        return _Chosen(wanted, facts, list(buckets_of(table, hot)), left, wrong)

    async def _cut(self, chosen: Sequence[_Chosen]) -> dict[BucketId, Cut]:
        """Where every bucket ends; one whose log ends below the lake is left out."""
        ahead: set[BucketId] = set()
        hot = [one for one in chosen if one.wanted.tier != "lake"]
        total = sum(len(one.buckets) for one in hot)
        for _ in range(total + 1):
            asked = [
                (one.wanted.table, [bucket for bucket, _ in one.buckets if bucket not in ahead])
                for one in hot
            ]
            known = {
                bucket: place
                for one in hot
                for bucket, _ in one.buckets
                if bucket not in ahead and (place := one.tiered(bucket)) is not None
            }
            try:
                vector: Cuts = await cut_tables(
                    self._cluster, [pair for pair in asked if pair[1]], CutTerms(known=known)
                )
            except LakeAhead as error:
                bucket = error.facts.get("bucket")
                if not isinstance(bucket, BucketId) or bucket in ahead:
                    raise
                ahead.add(bucket)
                continue
            return dict(vector)
        raise AssertionError("each turn leaves one bucket out")

    # --- one table --------------------------------------------------------------------------------------------

    async def _plan(self, chosen: _Chosen, vector: Mapping[BucketId, Cut]) -> UnionPlan:
        table, wanted = chosen.wanted.table, chosen.wanted
        if table.description.has_primary_key and chosen.gone:
            chosen = replace(chosen, gone=_not_taken_over(chosen, vector))
        if chosen.wrong is not None and not _all_hot(chosen, chosen.wrong, vector):
            raise quarantined(table, chosen.wrong)
        hot, ends = _hot_part(chosen, vector)
        files = await self._lake_part(chosen)
        plan = UnionPlan(
            table.table_id,
            chosen.record.snapshot_id if files and chosen.record is not None else None,
            tuple(files),
            hot,
            ends=tuple(ends),
        )
        if not files or not isinstance(hot, KeyScanPlan) or wanted.tier == "lake":
            return plan
        return replace(plan, dead=await self._dead(chosen, hot, files))

    async def plan_snapshot(self, wanted: UnionRequest, snapshot_id: int) -> UnionPlan:
        """A snapshot of the lake alone: the table as of that commit, with its partitions at the time."""
        table = wanted.table
        facts = await self._lake_facts(replace(wanted, tier="lake"))
        found = await self._files.files(facts, table, snapshot_id, wanted.where)
        hot, _ = _hot_part(_Chosen(wanted, facts, []), {})
        if not table.partitioned:
            choose_partitions(table.description, [], wanted.partitions)
            return UnionPlan(table.table_id, snapshot_id, tuple(found), hot)
        existing = await self._cluster.partitions(table)
        there = {one.name: one for one in [*existing, *_gone(table, facts, existing)]}
        for file in found:  # a partition that was dropped since
            name = file.partition_name or ""
            there.setdefault(name, PartitionInfo(NO_PARTITION - len(there), name, tuple(name.split("$"))))
        chosen = choose_partitions(table.description, list(there.values()), wanted.partitions)
        if wanted.where is not None:
            chosen = prune(chosen, table.description, wanted.where)
        names = {one.name for one in chosen}
        files = tuple(file for file in found if file.partition_name in names)
        return UnionPlan(table.table_id, snapshot_id, files, hot)

    async def _lake_facts(self, wanted: UnionRequest) -> LakeFacts:
        """What is known of a lake that is read alone; LakeDisabled or LakeQuarantined when it cannot be.

        An empty table needs no lake: there is nothing to tier.
        """
        table = wanted.table
        facts = await self.facts(table)
        if facts is None or (facts.snapshot_id is None and not (facts.enabled and await self._empty(table))):
            raise LakeDisabled(
                f"{table.path} is not in the lake yet: set {ENABLED}, and run `strom tier`",
                table=str(table.path),
            )
        if facts.record is not None and facts.record.quarantined:
            raise quarantined(wanted.table, facts)
        return facts

    async def _empty(self, table: TableInfo) -> bool:
        """Whether no bucket ever had a row."""
        partitions = await self._cluster.partitions(table) if table.partitioned else None
        if partitions is not None:
            await self._cluster.find_leaders(table, [one.partition_id for one in partitions])
        buckets = [bucket for bucket, _ in buckets_of(table, partitions)]
        ends = await cut_table(self._cluster, table, buckets) or {}
        return all(cut.end == 0 for cut in ends.values())

    async def _lake_part(self, chosen: _Chosen) -> list[LakeFile]:
        record, facts, wanted = chosen.record, chosen.facts, chosen.wanted
        if record is None or facts is None or record.snapshot_id is None:
            return []
        held = {bucket for bucket, _ in [*chosen.buckets, *chosen.gone] if chosen.tiered(bucket) is not None}
        where, schema = wanted.where, wanted.table.schema
        if not held or (where is not None and not may_match(where, schema, record.bounds)):
            return []
        found = await self._files.files(facts, wanted.table, record.snapshot_id, where)
        return [file for file in found if bucket_of(wanted.table.table_id, file) in held]

    async def _dead(
        self, chosen: _Chosen, hot: KeyScanPlan, files: Sequence[LakeFile]
    ) -> dict[BucketId, Offsets]:
        table = chosen.wanted.table
        read = {bucket_of(table.table_id, file) for file in files}
        limit = asyncio.Semaphore(DEAD_AT_ONCE)

        async def one(instant: Instant) -> tuple[BucketId, Offsets]:
            place = chosen.tiered(instant.bucket)
            async with limit:
                epoch = None if place is None else place.epoch
                return instant.bucket, await dead_offsets(self._cluster, table, instant, start_epoch=epoch)

        asked = [instant for instant in hot.instants if instant.start and instant.bucket in read]
        return dict(await asyncio.gather(*(one(instant) for instant in asked)))


def quarantined(table: TableInfo, facts: LakeFacts) -> LakeQuarantined:
    """The error of a quarantined lake: why it is not read, and what to do."""
    reason = facts.reason or "its lake holds rows that no round wrote"
    return LakeQuarantined(
        f"the lake table of {table.path} is quarantined: {reason.rstrip('.')}. Once it is repaired, `strom lake "
        f'rebuild {table.path}` lets it go on; what the servers still hold can be read with tier="hot"',
        table=str(table.path),
    )


def _tiered(record: LakeRecord | None, bucket: BucketId) -> Tiered | None:
    if record is None:
        return None
    found = record.offsets.get(LakeKey(bucket.partition_id, bucket.bucket))
    return found if found is not None and found.offset > 0 else None


def _all_hot(chosen: _Chosen, wrong: LakeFacts, vector: Mapping[BucketId, Cut]) -> bool:
    """Whether the servers hold everything that the lake has of the chosen buckets, so that the lake is not needed.

    Buckets of a primary-key table hold every live row, log buckets as long as retention has removed nothing. A bucket
    that lost its end in a crash does not: the lake is ahead of it.
    """
    assert wrong.record is not None
    keyed = chosen.wanted.table.description.has_primary_key
    for bucket, name in chosen.buckets:
        place, cut = _tiered(wrong.record, bucket), vector.get(bucket)
        if place is None:
            continue
        start = wrong.record.start_of(bucket.partition_id, name, bucket.bucket)
        if cut is None or cut.end < place.offset or (not keyed and cut.start > start):
            return False
    return True


def _newest(partitions: Sequence[PartitionInfo]) -> int:
    """The highest id: ids only rise."""
    return max((one.partition_id for one in partitions), default=-1)


def _gone(
    table: TableInfo, facts: LakeFacts | None, existing: Sequence[PartitionInfo]
) -> list[PartitionInfo]:
    """Partitions that retention dropped from the servers, and the lake keeps."""
    if facts is None or facts.record is None:
        return []
    there = {one.partition_id for one in existing}
    width = len(table.description.partition_keys)
    return [
        PartitionInfo(partition_id, name, tuple(name.split("$")))
        for partition_id, name in facts.record.partitions.items()
        if partition_id not in there
        and partition_id not in facts.record.dropped  # dropped explicitly: the next round deletes its rows
        and name.count("$") == width - 1
    ]


def _not_taken_over(chosen: _Chosen, vector: Mapping[BucketId, Cut]) -> list[tuple[BucketId, str]]:
    """Lake-only partitions, without recreated ones that got all rows of their predecessors."""
    ends = {(name, bucket.bucket): vector[bucket].end for bucket, name in chosen.buckets if bucket in vector}
    return [
        (bucket, name)
        for bucket, name in chosen.gone
        if (place := chosen.tiered(bucket)) is None or ends.get((name, bucket.bucket), 0) < place.offset
    ]


def _hot_part(
    chosen: _Chosen, vector: Mapping[BucketId, Cut]
) -> tuple[ScanPlan | KeyScanPlan, list[BucketEnd]]:
    """From A (or where the log begins) to B of every bucket, and B."""
    table = chosen.wanted.table
    keyed = table.description.has_primary_key
    ranges: list[BucketRange] = []
    instants: list[Instant] = []
    ends: list[BucketEnd] = []
    for bucket, name in [*chosen.buckets, *chosen.gone]:
        place = chosen.tiered(bucket)
        low = 0 if place is None else place.offset
        cut = vector.get(bucket)
        if cut is None:  # the lake alone
            ends.append(BucketEnd(bucket, name, low, hot=False))
            continue
        ends.append(BucketEnd(bucket, name, cut.end, hot=True))
        if not keyed and place is not None and cut.start > low:
            raise OffsetOutOfRange(
                f"bucket {bucket} of {table.path} lost the offsets from {low} to {cut.start}: neither the lake nor the "
                "server has them. If the cluster's metadata is from a backup, `strom lake rebuild` finds what the lake "
                'has since; what there is can be read with tier="hot" and tier="lake"',
                bucket=bucket,
                lake=low,
                start=cut.start,
            )
        if keyed and cut.end > low:
            instants.append(Instant(bucket, name, cut.end, cut.epoch, start=low))
        elif not keyed and cut.end > max(low, cut.start):
            known = None if cut.epoch is None else (cut.end, cut.epoch)
            start = max(low, cut.start)
            ranges.append(BucketRange(bucket, name, start, cut.end, known, damaged=cut.damaged))
    if keyed:
        return KeyScanPlan(table.table_id, tuple(instants), None), ends
    return ScanPlan(table.table_id, tuple(ranges)), ends
