"""Where a round begins and where it will end: read the lake first, then cut the buckets on the servers.

The servers check the lake's offsets against what they hold. A bucket that lost its end (power failure with weak
durability, a folder from a backup) continues where the lake ends, in a new epoch. Before that, an empty commit fences
every other round under way, so that none can land beyond the point where the bucket continues. A primary-key bucket
gets its rows back from the lake.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from strom.client.cluster.metadata import TableInfo
from strom.client.plan.cut import Cuts, CutTerms
from strom.errors import LakeAhead, LakeConflict, LakeCorrupt, StaleEpoch
from strom.lake.iceberg.commit import adopt, commit_round, drop_partitions
from strom.lake.iceberg.lake_head import LakeHead, read_head
from strom.lake.iceberg.table import LakeTable
from strom.lake.read.live_rows import live_rows
from strom.lake.rounds.cluster import Buckets, TieringCluster
from strom.lake.rounds.parts import Bounds, Ending, Kind, plan_parts
from strom.lake.rounds.plan import RoundPlan
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey, Tiered
from strom.runtime.clock import Clock

SMALL_ROWS = 10_000
"""This few rows are one task, however large they are: no need to ask for sizes."""
BUCKETS_LOST_MAX = 10_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RoundPlanner:
    """Plans rounds of one table."""

    cluster: TieringCluster
    lake: LakeTable
    table: TableInfo
    bounds: Bounds
    clock: Clock
    round_id: str
    report: Callable[[LakeHead], object]
    """Reports to the coordinator what the lake holds."""

    @property
    def kind(self) -> Kind:
        """What the table's rounds read: records of a log, or images of a primary-key table."""
        return "keys" if self.table.description.has_primary_key else "log"

    def plan(self) -> RoundPlan:
        """Plan the next round from the current state."""
        for _ in range(BUCKETS_LOST_MAX):
            head = self._without_dropped(adopt(self.lake, read_head(self.lake), clock=self.clock))
            buckets = self.cluster.buckets(self.table)
            try:
                vector = self._cut(head, buckets)
            except LakeAhead as error:
                self._resume(head, buckets, error)
                continue
            lost = self._made_again(head, buckets, vector)
            if lost is None:
                return self._plan(head, buckets, vector)
            self._go_on(head, *lost)
        raise LakeCorrupt(f"too many buckets of {self.table.path} lost their end")

    def _without_dropped(self, head: LakeHead) -> LakeHead:
        """The lake without partitions that were dropped explicitly: a separate commit removes them."""
        if not head.partitions:
            return head
        record = self.cluster.describe(self.table.path).record
        dropped = {} if record is None else record.dropped
        names = {name for partition_id, name in dropped.items() if partition_id in head.partitions}
        if not names:
            return head
        return drop_partitions(self.lake, head, names, round_id=f"{self.round_id}-drop", clock=self.clock)

    def _cut(self, head: LakeHead, buckets: Buckets) -> Cuts:
        known = _known(self.table.table_id, head)
        ids = [bucket for bucket, _ in buckets]
        try:
            return self.cluster.cut(self.table, ids, CutTerms(sync=True, known=known))
        except StaleEpoch as error:
            raise LakeCorrupt(
                f"the lake holds other rows than the log has: {error.message}. Rows reached the lake, were lost by the "
                "server before they were safe, and others were written in their place",
                **error.facts,
            ) from error

    def _plan(self, head: LakeHead, buckets: Buckets, vector: Cuts) -> RoundPlan:
        known = _known(self.table.table_id, head) | self._taken_over(head, buckets, vector)
        endings = {
            bucket: Ending(partition, vector[bucket].start, vector[bucket].end, _epoch(vector, bucket))
            for bucket, partition in buckets
        }
        lag = sum(max(one.end - _begin(known.get(bucket), one), 0) for bucket, one in endings.items())
        sizes = {} if lag <= SMALL_ROWS else self.cluster.row_bytes(self.table, buckets)
        whole = any(cut.grouped for cut in vector.values())
        parts = plan_parts(self.kind, known, endings, sizes, self.bounds, whole=whole)
        early = {bucket: end for bucket, end in parts.ends.items() if end < endings[bucket].end}
        epochs = {bucket: endings[bucket].epoch for bucket in parts.ends} | self._epochs_at(early)
        return RoundPlan(
            head=head,
            parts=parts,
            offsets={_key(bucket): Tiered(end, epochs[bucket]) for bucket, end in parts.ends.items()},
            partitions={
                bucket.partition_id: partition
                for bucket, partition in buckets
                if bucket.partition_id is not None and partition is not None and bucket in parts.ends
            },
            lag_rows=lag,
        )

    def _epochs_at(self, ends: Mapping[BucketId, int]) -> dict[BucketId, int]:
        """The epochs of the records before these ends, which lie before the ends of the buckets."""
        if not ends:
            return {}
        found = self.cluster.cut(self.table, list(ends), CutTerms(at_most=ends))
        if any(found[bucket].end != end for bucket, end in ends.items()):
            raise LakeConflict(f"{self.table.path} got its first transaction while its round was planned")
        return {bucket: _epoch(found, bucket) for bucket in ends}

    def _namesakes(self, head: LakeHead, buckets: Buckets) -> list[tuple[BucketId, str, Tiered]]:
        """Buckets of partitions that were dropped and recreated, with how far the lake holds their predecessors."""
        held = {(head.partitions.get(key[0]), key[1]): key for key in head.offsets if key[0] is not None}
        return [
            (bucket, name, head.offsets[key])
            for bucket, name in buckets
            if name is not None
            and (key := held.get((name, bucket.bucket))) is not None
            and key[0] != bucket.partition_id
            and head.offsets[key].offset > 0
        ]

    def _made_again(
        self, head: LakeHead, buckets: Buckets, vector: Cuts
    ) -> tuple[BucketId, str | None, Tiered] | None:
        """An empty primary-key bucket of a recreated partition: it must begin with the lake's rows of its predecessor.

        A log bucket needs nothing: the server lets it continue where its predecessor ended.
        """
        for bucket, name, place in self._namesakes(head, buckets) if self.kind == "keys" else ():
            if vector[bucket].end == 0:
                return bucket, name, place
        return None

    def _taken_over(self, head: LakeHead, buckets: Buckets, vector: Cuts) -> dict[BucketId, Tiered]:
        """How far the lake holds buckets of recreated partitions: as far as their predecessors.

        They must begin behind those: one that began earlier would reuse offsets that the lake has.
        """
        found = {}
        for bucket, name, place in self._namesakes(head, buckets):
            if vector[bucket].start < place.offset:
                raise LakeCorrupt(
                    f"partition {name} was dropped and recreated, and the lake has rows of the old one up to offset "
                    f"{place.offset}; the new rows would mix with them. Drop it (`strom partition "
                    "drop`), which takes the rows of its name out of the lake too, or use another name",
                    partition=name,
                    bucket=bucket,
                )
            found[bucket] = place
        return found

    def _resume(self, head: LakeHead, buckets: Buckets, error: LakeAhead) -> None:
        """Let a bucket that lost its end continue where the lake ends."""
        bucket = error.facts.get("bucket")
        if not isinstance(bucket, BucketId) or _key(bucket) not in head.offsets:
            raise error
        logger.warning(
            "%s: bucket %s lost its end; it continues where the lake ends", self.table.path, bucket
        )
        self._go_on(head, bucket, dict(buckets).get(bucket), head.offsets[_key(bucket)])

    def _go_on(self, head: LakeHead, bucket: BucketId, name: str | None, place: Tiered) -> None:
        """Let a bucket begin at ``place``, where the lake ends; a primary-key bucket gets its rows from the lake."""
        fenced = commit_round(
            self.lake,
            head,
            round_id=f"{self.round_id}-fence-{bucket.bucket}",
            added=(),
            dead={},
            offsets=head.offsets,
            partitions=head.partitions,
            clock=self.clock,
        )
        self.report(fenced)  # the servers trust only the cluster's record
        if self.kind == "log":
            self.cluster.resume(self.table, bucket, place)
            return
        assert fenced.snapshot_id is not None
        rows = live_rows(self.lake, fenced.snapshot_id, (name, bucket.bucket))
        self.cluster.restore(self.table, bucket, place, rows)
        logger.warning(
            "%s: bucket %s was rebuilt from the lake as of offset %d; later changes, if any, are lost",
            self.table.path,
            bucket,
            place.offset,
        )


def _begin(tiered: Tiered | None, ending: Ending) -> int:
    return ending.start if tiered is None else tiered.offset


def _key(bucket: BucketId) -> LakeKey:
    return LakeKey(bucket.partition_id, bucket.bucket)


def _known(table_id: int, head: LakeHead) -> dict[BucketId, Tiered]:
    return {BucketId(table_id, key[0], key[1]): tiered for key, tiered in head.offsets.items()}


def _epoch(vector: Cuts, bucket: BucketId) -> int:
    epoch = vector[bucket].epoch
    return -1 if epoch is None else epoch
