"""Reads one table from lake and log together: every row once, at one instant, in the order partition, bucket, offset.

Planned when rows are first read (``union_planner.py``); after that it returns the same rows each time. As long as
nothing was delivered, a plan whose hot part the servers no longer keep, or whose files another engine expired, is
replaced. Files are read by the consumer of the rows, one row group at a time; hot rows come as in any scan.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.lookup.lookups import Lookups
from strom.client.plan.filters import Filter
from strom.client.plan.key_plan import Instant, KeyScanPlan
from strom.client.plan.log_place import EARLIEST, LATEST, Place
from strom.client.plan.log_plan import BucketRange
from strom.client.plan.partition_choice import PartitionChoice
from strom.client.read.bucket_read import Chunks
from strom.client.read.key_scan import KeyScan
from strom.client.read.log_scan import LogScan
from strom.client.read.row_reader import RowReader
from strom.client.read.row_scan import Collected, RowScan
from strom.client.read.scan_chunk import AnyChunk
from strom.client.read.source import ReadStatistics
from strom.errors import Expired, InvalidRequest, LakeCorrupt, LakeDisabled, OffsetOutOfRange
from strom.lake.files.file_reader import LakeFile
from strom.lake.read.system_rows import OWN_COLUMNS, lake_schema_of
from strom.lake.read.time_travel import Moment, between, kept_instants, plan_at
from strom.lake.read.union_files import read_one
from strom.lake.read.union_plan import UnionPlan
from strom.lake.read.union_planner import Tier, UnionPlanner, UnionRequest
from strom.lake.read.warehouses import Warehouses
from strom.model.schema import Schema

PLANS_MAX = 5


def _output(schema: Schema, columns: Sequence[str] | None, tier: Tier) -> tuple[list[str], pa.Schema]:
    """The columns of the result; a scan of the lake alone can also have those that give a row's origin."""
    own = set(OWN_COLUMNS) & set(columns or ()) if tier == "lake" else set()
    reader = RowReader(schema, None if columns is None else [name for name in columns if name not in own])
    if not own or columns is None:
        return list(reader.arrow.names), reader.arrow
    full = lake_schema_of(schema)
    return list(columns), pa.schema([full.field(name) for name in columns])


class LakeChunk(NamedTuple):
    """One file; the consumer of the rows reads it."""

    range_number: int
    file: LakeFile


class HotChunk(NamedTuple):
    """An answer of a server, and the scan that can decode it."""

    range_number: int
    chunk: AnyChunk
    scan: RowScan


class UnionScan(RowScan):
    """One read of one table in both tiers."""

    def __init__(
        self,
        cluster: Cluster,
        warehouses: Warehouses,
        table: TableInfo,
        *,
        columns: Sequence[str] | None = None,
        where: Filter | None = None,
        limit: int | None = None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None = None,
        tier: Tier = "both",
        start: Place = EARLIEST,
        end: Place = LATEST,
        at: Moment | None = None,
        lookups: Lookups,
        before: Callable[[], Awaitable[None]] | None = None,
        plan: UnionPlan | None = None,
    ) -> None:
        if limit is not None and limit < 0:
            raise InvalidRequest(f"limit is 0 or more, not {limit}", limit=limit)
        self._cluster = cluster
        self._warehouses = warehouses
        self._table = table
        self._where = where
        self._lookups = lookups
        self._before = before
        self._start, self._end = start, end
        self._at = at
        predicate = None if where is None else where.predicate
        self._wanted = UnionRequest(table, predicate, partitions, tier)
        self._names, self._schema = _output(table.schema, columns, tier)
        self._plan = plan
        self._given = plan is not None
        self.limit = limit
        self.statistics = ReadStatistics()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._schema

    @property
    def streaming_limit(self) -> int | None:
        """The row limit while reading."""
        return self.limit

    async def plan(self) -> UnionPlan:  # type: ignore[override]
        """The plan of lake and log, fixed at first use."""
        if self._plan is None:
            if self._before is not None:
                await self._before()
            planner = UnionPlanner(self._cluster, self._warehouses)
            self._plan = await self._make_plan(planner)
        return self._plan

    async def _make_plan(self, planner: UnionPlanner) -> UnionPlan:
        at, wanted = self._at, self._wanted
        if at is not None and (at.snapshot_id is not None or wanted.tier == "lake"):
            return await plan_at(planner, self._warehouses, wanted, at)
        (plan,) = await planner.plan([wanted])
        if at is None:
            return await between(self._cluster, wanted, plan, self._start, self._end)
        assert at.time_ms is not None
        kept = await kept_instants(self._cluster, wanted, plan, at.time_ms, self._lookups)
        return kept if kept is not None else await plan_at(planner, self._warehouses, wanted, at)

    async def plan_again(self, expired: Expired | OffsetOutOfRange) -> UnionPlan:
        """Plan a later instant, because the servers no longer keep this one."""
        if self._given:
            raise expired
        self._plan = None
        return await self.plan()

    # --- rows -------------------------------------------------------------------------------------------------

    async def stream(self, *, ordered: bool) -> Chunks:
        """Files and answers; pass each to ``read``."""
        return UnionChunks(self, await self._ready(), self._names, ordered=ordered)

    async def _ready(self) -> UnionPlan:
        """The plan, with the storage of its files known: it may come from another process."""
        plan = await self.plan()
        if plan.files and not self._warehouses.knows(plan.table_id):
            facts = await UnionPlanner(self._cluster, self._warehouses).facts(self._table)
            if facts is None or facts.config is None:
                raise LakeDisabled(f"{self._table.path} is not in the lake", table=str(self._table.path))
            self._warehouses.learn(plan.table_id, facts.config)
        return plan

    def hot_scan(self, plan: UnionPlan, columns: Sequence[str]) -> RowScan:
        """The scan of the hot part."""
        cluster, table = self._cluster, self._table
        made: RowScan
        if isinstance(plan.hot, KeyScanPlan):
            made = KeyScan(
                cluster, table, columns=columns, where=self._where, lookups=self._lookups, plan=plan.hot
            )
        else:
            made = LogScan(cluster, table, columns=columns, where=self._where, plan=plan.hot)
        made.statistics = self.statistics
        return made

    def read(self, chunk: AnyChunk) -> list[pa.RecordBatch]:
        """The rows of a chunk. Any thread may call."""
        return list(self.rows_of(chunk))

    def rows_of(self, chunk: AnyChunk) -> Iterator[pa.RecordBatch]:
        """The same, a row group of a file at a time."""
        if isinstance(chunk, HotChunk):
            yield from chunk.scan.read(chunk.chunk)
            return
        assert isinstance(chunk, LakeChunk)
        assert self._plan is not None
        yield from self._rows_of_file(chunk.file, self._names)

    def _rows_of_file(self, file: LakeFile, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        assert self._plan is not None
        storage = self._warehouses.storage_of(self._plan.table_id)
        where = None if self._where is None else self._where.predicate
        yield from read_one(storage, self._plan, file, self._table.schema, columns, where)

    async def to_batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The rows, batch by batch, in order; files are read off the loop."""
        left = self.limit
        begun = False
        stream = await self.stream(ordered=True)
        try:
            while left != 0 and (chunk := await stream.next()) is not None:
                try:
                    batches = await self._read_aside(chunk)
                except LakeCorrupt as error:
                    if begun:
                        raise
                    await stream.close()
                    await self.replan(error)
                    stream = await self.stream(ordered=True)
                    continue
                for batch in batches:
                    part = batch if left is None else batch.slice(0, left)
                    if part.num_rows:
                        begun = True
                        yield part
                    left = None if left is None else left - part.num_rows
        finally:
            await stream.close()

    async def to_arrow(self) -> pa.Table:
        """All rows."""
        try:
            return await self._to_arrow()
        except LakeCorrupt as error:
            await self.replan(error)
        return await self._to_arrow()

    async def replan(self, error: LakeCorrupt) -> None:
        """Start over if a file is missing because another engine expired its snapshot; otherwise it is damage."""
        plan, at = self._plan, self._at
        if self._given or plan is None or plan.snapshot_id is None or (at is not None and at.snapshot_id):
            raise error
        facts = await UnionPlanner(self._cluster, self._warehouses).facts(self._table)
        if facts is None or not await self._warehouses.is_gone(facts, self._table, plan.snapshot_id):
            raise error
        self._plan = None

    async def _to_arrow(self) -> pa.Table:
        collected = Collected(self)
        stream = await self.stream(ordered=collected.ordered)
        try:
            while not collected.complete and (chunk := await stream.next()) is not None:
                await self._cluster.world.offload.run(collected.add, chunk)
        finally:
            await stream.close()
        return collected.table()

    async def _read_aside(self, chunk: AnyChunk) -> list[pa.RecordBatch]:
        if isinstance(chunk, LakeChunk):
            return await self._cluster.world.offload.run(self.read, chunk)
        return self.read(chunk)

    async def count(self) -> int:
        """Count the rows; without a filter none is read where the plan tells."""
        if self._plan is None and self._whole_now and await self._all_hot():
            core = KeyScan(self._cluster, self._table, lookups=self._lookups, before=self._before)
            found = await core.count()
            return found if self.limit is None else min(found, self.limit)
        plan = await self._ready()
        known = plan.rows if self._where is None else None
        if known is None:
            try:
                known = await self._count_by_reading(plan)
            except LakeCorrupt as error:
                await self.replan(error)
                known = await self._count_by_reading(await self._ready())
        return known if self.limit is None else min(known, self.limit)

    @property
    def _whole_now(self) -> bool:
        """Whether all rows of a primary-key table are counted: its servers know the number of live rows."""
        wanted = self._wanted
        plain = wanted.where is None and wanted.partitions is None and self._at is None
        return plain and wanted.tier == "both" and self._table.description.has_primary_key

    async def _all_hot(self) -> bool:
        """Whether the servers have every partition: an expired one may be lake-only."""
        return not self._table.partitioned or all(one.hot for one in (await self.plan()).ends)

    async def _count_by_reading(self, plan: UnionPlan) -> int:
        schema = self._table.schema
        column = schema.names[0] if self._where is None else self._where.cheapest_column(schema)
        rows = 0
        if plan.hot_buckets:
            rows += await self.hot_scan(plan, [column]).count()
        for file in plan.files:
            rows += await self._cluster.world.offload.run(self._count_file, file, column)
        return rows

    def _count_file(self, file: LakeFile, column: str) -> int:
        return sum(batch.num_rows for batch in self._rows_of_file(file, [column]))


class UnionChunks:
    """Files first, then the log; bucket by bucket where the order matters."""

    direct: None = None

    def __init__(self, scan: UnionScan, plan: UnionPlan, columns: Sequence[str], *, ordered: bool) -> None:
        self._scan = scan
        self._columns = columns
        self._ordered = ordered
        self._plans = 1
        self._delivered = False
        self._begin(plan)

    def _begin(self, plan: UnionPlan) -> None:
        self._plan = plan
        self._hot: RowScan | None = None
        self._hot_from = 0
        self._stream: Chunks | None = None
        self._parts = parts_of(plan) if self._ordered else whole(plan)
        self._numbers = numbers_of(plan)

    async def next(self) -> AnyChunk | None:
        """The next file or answer; None at the end."""
        while True:
            try:
                chunk = await self._next()
            except (Expired, OffsetOutOfRange) as error:
                if self._delivered or self._plans == PLANS_MAX:
                    raise
                self._plans += 1
                await self.close()
                self._begin(await self._scan.plan_again(error))
                continue
            self._delivered = True
            return chunk

    async def _next(self) -> AnyChunk | None:
        while True:
            if self._stream is not None:
                chunk = await self._stream.next()
                if chunk is not None:
                    number = self._numbers.hot[self._hot_from + chunk.range_number]
                    assert self._hot is not None
                    return HotChunk(number, chunk, self._hot)
                await self._stream.close()
                self._stream = None
            part = next(self._parts, None)
            if part is None:
                return None
            if isinstance(part, tuple):
                self._hot_from, plan = part
                self._hot = self._scan.hot_scan(plan, self._columns)
                self._stream = await self._hot.stream(ordered=self._ordered)
            else:
                return LakeChunk(self._numbers.files[part], self._plan.files[part])

    async def close(self) -> None:
        """Stop all requests."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.close()


class ScanOrder(NamedTuple):
    """The positions of files and hot ranges in the order of a scan."""

    files: list[int]
    hot: list[int]


def numbers_of(plan: UnionPlan) -> ScanOrder:
    """Partition, bucket, then files before the log."""
    ranges = _hot_ranges(plan)
    keys: list[tuple[str, int, int, int, int]] = [
        (file.partition_name or "", file.bucket, 0, file.first_offset, at)
        for at, file in enumerate(plan.files)
    ]
    keys += [(one.partition or "", one.bucket.bucket, 1, 0, at) for at, one in enumerate(ranges)]
    files, hot = [0] * len(plan.files), [0] * len(ranges)
    for number, key in enumerate(sorted(keys)):
        (hot if key[2] else files)[key[4]] = number
    return ScanOrder(files, hot)


def parts_of(plan: UnionPlan) -> Iterator[int | tuple[int, UnionPlan]]:
    """In order: the number of a file, or one hot bucket as a separate plan with its number."""
    numbers = numbers_of(plan)
    order: list[tuple[int, int, bool]] = [(number, at, False) for at, number in enumerate(numbers.files)]
    order += [(number, at, True) for at, number in enumerate(numbers.hot)]
    waiting: list[int] = []
    for _, at, hot in sorted(order):
        if hot:
            waiting.append(at)
            continue
        if waiting:
            yield waiting[0], _hot_only(plan, waiting)
            waiting = []
        yield at
    if waiting:
        yield waiting[0], _hot_only(plan, waiting)


def whole(plan: UnionPlan) -> Iterator[int | tuple[int, UnionPlan]]:
    """The log first, which may expire; then the files."""
    count = plan.hot_buckets
    if count:
        yield 0, plan
    yield from range(len(plan.files))


def _hot_ranges(plan: UnionPlan) -> Sequence[BucketRange | Instant]:
    return plan.hot.instants if isinstance(plan.hot, KeyScanPlan) else plan.hot.ranges


def _hot_only(plan: UnionPlan, places: Sequence[int]) -> UnionPlan:
    """The hot part, limited to some adjacent ranges."""
    if isinstance(plan.hot, KeyScanPlan):
        some = tuple(plan.hot.instants[at] for at in places)
        return replace(plan, hot=replace(plan.hot, instants=some))
    return replace(plan, hot=replace(plan.hot, ranges=tuple(plan.hot.ranges[at] for at in places)))
