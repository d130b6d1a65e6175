"""The lake-only beginning of a log: what a tail reads before it follows the servers.

A row has one offset for ever, in both tiers. For each bucket, rows below the servers' first offset are read from files,
and the servers are followed from there on: each row once, in the order of its offset. Retention goes on while files are
read; so the tail checks again at the end, and reads rows that became lake-only meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.filters import Filter
from strom.client.plan.log_place import Place, PlaceKind
from strom.client.plan.log_plan import ScanPlan
from strom.client.plan.offsets import Offsets
from strom.client.plan.partition_choice import PartitionChoice
from strom.client.read.row_reader import Fetched
from strom.client.read.tail_batch import TailBatch
from strom.errors import LakeDisabled, PartitionNotFound
from strom.lake.files.file_reader import LakeFile
from strom.lake.read.time_travel import between
from strom.lake.read.union_files import read_one
from strom.lake.read.union_plan import LakeLimits, UnionPlan, bucket_of
from strom.lake.read.union_planner import UnionPlanner, UnionRequest
from strom.lake.read.warehouses import Warehouses
from strom.model.bucket import BucketId
from strom.model.lake.lake_types import OFFSET, TIMESTAMP

Where = tuple[BucketId, str | None]
PLANS_MAX = 5


class LakeOnlyLog:
    """The rows before the servers' first. ``open``, ``next`` until None, then follow the servers from ``rest``."""

    def __init__(
        self,
        cluster: Cluster,
        warehouses: Warehouses,
        table: TableInfo,
        *,
        start: Place,
        columns: Sequence[str],
        where: Filter | None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None,
    ) -> None:
        self._cluster = cluster
        self._warehouses = warehouses
        self._table = table
        self._start = start
        self._columns = list(columns)
        self._predicate = None if where is None else where.predicate
        self._wanted = UnionRequest(table, self._predicate, partitions, "both")
        self._plan: UnionPlan | None = None
        self._files: list[LakeFile] = []
        self._reading: tuple[LakeFile, Iterator[pa.RecordBatch]] | None = None
        self._positions: dict[tuple[str | None, int], int] = {}
        self._rest: dict[BucketId, int] = {}

    @property
    def positions(self) -> dict[tuple[str | None, int], int]:
        """Where the reader is, including lake-only partitions."""
        return dict(self._positions)

    @property
    def rest(self) -> Place:
        """Where to follow the servers from."""
        return Place(PlaceKind.EACH, each=dict(self._rest.items()))

    async def open(self) -> None:
        """Plan what to read of the lake: everything from the start on that no server has."""
        await self._begin(self._start)

    async def _begin(self, start: Place, *, again: bool = False) -> None:
        planner = UnionPlanner(self._cluster, self._warehouses)
        offsets = Offsets(self._cluster, self._table)
        for left in reversed(range(PLANS_MAX)):
            (whole,) = await planner.plan([self._wanted])
            hot: list[Where] = [(one.bucket, one.partition) for one in whole.ends if one.hot]
            try:
                first = await offsets.at(Place(PlaceKind.EARLIEST), hot)
            except PartitionNotFound:
                if not left:
                    raise
                continue  # it was dropped between the two calls
            if not left or _meet(whole, first):
                break
        if again:  # a partition may have been dropped by now
            names = {(one.partition, one.bucket.bucket) for one in whole.ends}
            start = replace(start, each={key: at for key, at in start.each.items() if key in names})
        plan = await between(self._cluster, self._wanted, whole, start, Place(PlaceKind.LATEST))
        said = await offsets.at(start, hot)
        self._rest = {bucket: max(said[bucket], first[bucket]) for bucket, _ in hot}
        self._plan = _below(plan, first)
        self._files = [one for one in plan.files if _counts(self._plan, one)]
        self._positions |= {
            (one.partition, one.bucket.bucket): self._rest.get(one.bucket, one.end) for one in whole.ends
        }
        for file in reversed(self._files):  # the first of a bucket counts
            low = (self._plan.limits or LakeLimits()).low.get(bucket_of(self._plan.table_id, file), 0)
            self._positions[file.partition_name, file.bucket] = max(low, file.first_offset)
        if self._files:
            await self._reach(planner)

    async def _reach(self, planner: UnionPlanner) -> None:
        if not self._warehouses.knows(self._table.table_id):
            facts = await planner.facts(self._table)
            if facts is None or facts.config is None:
                raise LakeDisabled(f"{self._table.path} is not in the lake", table=str(self._table.path))
            self._warehouses.learn(self._table.table_id, facts.config)

    async def next(self) -> TailBatch | None:
        """The next rows of the lake; None when there are no more lake-only rows."""
        while True:
            found = await self._cluster.world.offload.run(self._read_on)
            if found is not None:
                file, batch = found
                return self._told(file, batch)
            if not await self._again():
                return None

    def _read_on(self) -> tuple[LakeFile, pa.RecordBatch] | None:
        """Rows of the open file, or of the next one; runs off the loop."""
        assert self._plan is not None
        while True:
            if self._reading is None:
                if not self._files:
                    return None
                file = self._files.pop(0)
                storage = self._warehouses.storage_of(self._plan.table_id)
                asked = [*self._columns, OFFSET, TIMESTAMP]
                rows = read_one(storage, self._plan, file, self._table.schema, asked, self._predicate)
                self._reading = (file, iter(rows))
            file, batches = self._reading
            batch = next(batches, None)
            if batch is not None:
                return file, batch
            self._reading = None
            self._done(file)

    def _done(self, file: LakeFile) -> None:
        """Note that all rows of a file were delivered or filtered out."""
        place = (file.partition_name, file.bucket)
        self._positions[place] = max(self._positions[place], self._end_of(file))
        if not any((one.partition_name, one.bucket) == place for one in self._files):
            bucket = bucket_of(self._table.table_id, file)
            self._positions[place] = max(self._positions[place], self._rest.get(bucket, 0))

    def _end_of(self, file: LakeFile) -> int:
        assert self._plan is not None
        high = (self._plan.limits or LakeLimits()).high
        bucket = bucket_of(self._plan.table_id, file)
        return min(file.last_offset + 1, high.get(bucket, file.last_offset + 1))

    def _told(self, file: LakeFile, batch: pa.RecordBatch) -> TailBatch:
        offsets = batch.column(OFFSET).to_numpy().astype(np.int64, copy=False)
        newest = pc.max(batch.column(TIMESTAMP).cast(pa.timestamp("ms", "UTC"), safe=False).view(pa.int64()))
        fetched = Fetched(
            batch.select(range(len(self._columns))),
            int(offsets[0]),
            newest.as_py() or 0,
            offsets,
            None,
        )
        self._positions[file.partition_name, file.bucket] = int(offsets[-1]) + 1
        return TailBatch(fetched, bucket_of(self._table.table_id, file), file.partition_name)

    async def _again(self) -> bool:
        """Whether unread rows left the servers meanwhile; then they are read next."""
        hot: list[Where] = [(bucket, None) for bucket in self._rest]
        try:
            first = await Offsets(self._cluster, self._table).at(Place(PlaceKind.EARLIEST), hot)
        except PartitionNotFound:
            pass  # a partition was dropped: plan again
        else:
            if all(first[bucket] <= offset for bucket, offset in self._rest.items()):
                return False
        seen = Place(PlaceKind.EACH, each=dict(self._positions.items()))
        await self._begin(seen, again=True)
        return bool(self._files)


def _meet(plan: UnionPlan, first: Mapping[BucketId, int]) -> bool:
    """Whether the servers still begin where the plan's files end, or before; otherwise there is a gap."""
    assert isinstance(plan.hot, ScanPlan)
    begins = {one.bucket: one.end for one in plan.ends} | {one.bucket: one.start for one in plan.hot.ranges}
    return all(offset <= begins[bucket] for bucket, offset in first.items())


def _below(plan: UnionPlan, first: Mapping[BucketId, int]) -> UnionPlan:
    """The plan with files only up to where the servers begin."""
    limits = plan.limits or LakeLimits()
    high = {**limits.high, **first}
    return replace(plan, limits=replace(limits, high=high))


def _counts(plan: UnionPlan, file: LakeFile) -> bool:
    """Whether a file has offsets within the limits."""
    assert plan.limits is not None
    bucket = bucket_of(plan.table_id, file)
    low, high = plan.limits.low.get(bucket, 0), plan.limits.high.get(bucket, file.last_offset + 1)
    return low <= file.last_offset and high > file.first_offset
