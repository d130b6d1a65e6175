"""Reads a log table as it is at one moment; ``RowScan`` is what all scans share.

The moment is fixed by planning (offsets of every bucket), which happens when rows are first asked for; after that
the same scan gives the same rows in the same order (partition, bucket, offset), however often it is read.
Columns, filter and partitions are applied on the server; nothing else is sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import ReadOptions
from strom.client.plan.filters import Filter, prune
from strom.client.plan.offsets import Offsets
from strom.client.plan.places import EARLIEST, LATEST, Place
from strom.client.plan.planned import table_ends
from strom.client.plan.planning import (
    PartitionChoice,
    ScanPlan,
    buckets_of,
    check_kept,
    check_place,
    choose_partitions,
    plan_scan,
)
from strom.client.read.chunk import AnyChunk, Chunk
from strom.client.read.damage import told_where
from strom.client.read.fetching import ChunkStream, RangeFetch, ReadStatistics, Source
from strom.client.read.log_question import LogQuestion
from strom.client.read.question import Chunks
from strom.client.read.rows import Fetched, RowReader
from strom.client.read.rows import count as count_rows
from strom.errors import Corrupt, InvalidRequest, LakeCorrupt
from strom.model.bucket import BucketId

if TYPE_CHECKING:
    from strom.client.plan.key_plan import KeyScanPlan

TINY_ROWS = 1024
MANY_BATCHES = 64


class RowScan(ABC):
    """A question to a table of any kind: planned once, then read as often as one likes."""

    limit: int | None
    statistics: ReadStatistics

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the result."""

    @property
    @abstractmethod
    def streaming_limit(self) -> int | None:
        """How many rows to stop after while reading; None when the plan holds exactly the rows."""

    @abstractmethod
    async def plan(self) -> ScanPlan | KeyScanPlan:
        """What this scan reads, fixed the first time."""

    @abstractmethod
    async def stream(self, *, ordered: bool) -> Chunks:
        """The answers of the servers, to be given to ``read`` one by one."""

    @abstractmethod
    def read(self, chunk: AnyChunk) -> list[pa.RecordBatch]:
        """The rows of a chunk; any thread."""

    @abstractmethod
    async def count(self) -> int:
        """How many rows there are."""

    async def plan_anew(self, error: LakeCorrupt) -> None:
        """Begin anew after an error while nothing was delivered, if that can help; else the error again."""
        raise error

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The rows, batch by batch, in order."""
        rest = Rest(self.streaming_limit)
        stream = await self.stream(ordered=True)
        try:
            while not rest.empty and (chunk := await stream.next()) is not None:
                for batch in rest.take(self.read(chunk)):
                    yield batch
        finally:
            await stream.close()

    async def to_arrow(self) -> pa.Table:
        """All rows."""
        collected = Collected(self)
        stream = await self.stream(ordered=collected.ordered)
        try:
            while not collected.complete and (chunk := await stream.next()) is not None:
                collected.add(chunk)
        finally:
            await stream.close()
        return collected.table()


class Scan(RowScan):
    """One question to one log. ``before`` runs before planning: what this client appended is flushed there.

    With ``plan``, made elsewhere, nothing is planned: exactly these offsets are read. ``as_of``: ``end`` is an instant,
    at which the table is read as it was; Expired when a bucket keeps nothing from before it.
    """

    def __init__(
        self,
        cluster: Cluster,
        table: TableInfo,
        *,
        columns: Sequence[str] | None = None,
        where: Filter | None = None,
        start: Place = EARLIEST,
        end: Place = LATEST,
        as_of: bool = False,
        limit: int | None = None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None = None,
        options: ReadOptions | None = None,
        before: Callable[[], Awaitable[None]] | None = None,
        plan: ScanPlan | None = None,
    ) -> None:
        if limit is not None and limit < 0:
            raise InvalidRequest(f"limit is 0 or more, not {limit}", limit=limit)
        self._cluster = cluster
        self._table = table
        self._where = where
        self._start, self._end = start, end
        self._as_of = as_of
        self.limit = limit
        self._partitions = partitions
        self._options = options or ReadOptions()
        self._before = before
        self._reader = RowReader(table.schema, columns)
        self._plan = plan
        self._given = plan is not None
        self.statistics = ReadStatistics()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._reader.arrow

    @property
    def streaming_limit(self) -> int | None:
        """How many rows to stop after while reading. None without a filter: then the plan holds exactly the rows."""
        return None if self._where is None else self.limit

    async def plan(self) -> ScanPlan:
        """The offsets this scan reads, fixed the first time."""
        if self._plan is None:
            if self._before is not None:
                await self._before()
            plan = await self._make_plan()
            self._plan = plan.limited(self.limit) if self.streaming_limit is None else plan
        return self._plan

    async def _make_plan(self) -> ScanPlan:
        table, cluster = self._table, self._cluster
        chosen = None
        if table.partitioned:
            chosen = choose_partitions(table.description, await cluster.partitions(table), self._partitions)
            if self._where is not None:
                chosen = prune(chosen, table.description, self._where.predicate)
            await cluster.find_leaders(table, [partition.partition_id for partition in chosen])
        else:
            choose_partitions(table.description, [], self._partitions)
        buckets = list(buckets_of(table, chosen))
        for place in (self._start, self._end):
            check_place(place, buckets)
        offsets = Offsets(cluster, table)
        first, last = await self._ends(offsets, buckets)
        ends = last if self._end == LATEST else await offsets.at(self._end, buckets)
        if self._as_of:
            check_kept(self._table, first, last, ends)
        return plan_scan(
            table,
            buckets,
            first=first,
            last=last,
            starts=first if self._start == EARLIEST else await offsets.at(self._start, buckets),
            ends=ends,
        )

    async def _ends(
        self, offsets: Offsets, buckets: Sequence[tuple[BucketId, str | None]]
    ) -> tuple[Mapping[BucketId, int], Mapping[BucketId, int]]:
        """Where the buckets begin and end; a scan of what is there now holds whole transactions only."""
        if self._end == LATEST:
            ids = [bucket for bucket, _ in buckets]
            vector = await table_ends(self._cluster, self._table, ids)
            if vector is not None:
                return {one: vector[one].start for one in ids}, {one: vector[one].end for one in ids}
        return await offsets.ends(buckets)

    async def stream(self, *, ordered: bool) -> ChunkStream:
        """The answers of the servers, to be given to ``read`` one by one."""
        plan = await self.plan()
        if self._given:  # planned elsewhere: who leads may not be known here
            ids = {one.bucket.partition_id for one in plan.ranges if one.bucket.partition_id is not None}
            await self._cluster.find_leaders(self._table, sorted(ids))
        return self._stream(plan, self._reader, ordered=ordered)

    def _stream(self, plan: ScanPlan, reader: RowReader, *, ordered: bool) -> ChunkStream:
        source = Source(
            cluster=self._cluster,
            table=self._table,
            reader=reader,
            predicate=None if self._where is None else self._where.wire,
            options=self._options,
            statistics=self.statistics,
        )
        fetches = [RangeFetch(source, index, one) for index, one in enumerate(plan.ranges)]
        return ChunkStream(
            fetches,
            parallel=self._options.parallel_buckets,
            ordered=ordered,
            question=LogQuestion(source, plan.ranges),
        )

    def read(self, chunk: AnyChunk) -> list[pa.RecordBatch]:
        """The rows of a chunk; any thread."""
        assert isinstance(chunk, Chunk)
        try:
            return self._reader.read_all(chunk.batches, start=chunk.start, end=chunk.end)
        except Corrupt as error:
            raise told_where(self._table, self._bucket_of(chunk), error) from error

    def _bucket_of(self, chunk: Chunk) -> BucketId:
        assert self._plan is not None
        return self._plan.ranges[chunk.range_number].bucket

    def _read_each(self, chunk: Chunk) -> list[Fetched]:
        """The rows of each batch of a chunk, those that have any."""
        try:
            found = [self._reader.read(batch, start=chunk.start, end=chunk.end) for batch in chunk.batches]
        except Corrupt as error:
            raise told_where(self._table, self._bucket_of(chunk), error) from error
        return [one for one in found if one is not None]

    async def count(self) -> int:
        """How many rows there are. Without a filter no row is read; with one, only the cheapest column."""
        plan = await self.plan()
        if self._where is None:
            return plan.rows
        rows = 0
        reader = RowReader(self._table.schema, [self._where.cheapest_column(self._table.schema)])
        stream = self._stream(plan, reader, ordered=False)
        try:
            while (chunk := await stream.next()) is not None:
                rows += sum(count_rows(batch, start=chunk.start, end=chunk.end) for batch in chunk.batches)
        finally:
            await stream.close()
        return rows if self.limit is None else min(rows, self.limit)


class Rest:
    """How many rows may still come."""

    def __init__(self, limit: int | None) -> None:
        self._left = limit

    @property
    def empty(self) -> bool:
        """Whether no more rows are wanted."""
        return self._left == 0

    def take(self, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """The batches, cut off where the limit is reached."""
        if self._left is None:
            return list(batches)
        taken = []
        for batch in batches:
            if self._left == 0:
                break
            part = batch.slice(0, self._left)
            self._left -= part.num_rows
            taken.append(part)
        return taken


class Collected:
    """All rows of a scan: fetched in any order, put together in the order of the plan.

    With a limit the order decides which rows count, so they are fetched in order.
    """

    def __init__(self, scan: RowScan) -> None:
        self._scan = scan
        self._rest = Rest(scan.streaming_limit)
        self.ordered = scan.streaming_limit is not None
        self._by_range: dict[int, list[pa.RecordBatch]] = {}

    @property
    def complete(self) -> bool:
        """Whether the limit is reached."""
        return self._rest.empty

    def add(self, chunk: AnyChunk) -> None:
        """Take one chunk; the chunks of one range come in order."""
        batches = self._rest.take(self._scan.read(chunk))
        self._by_range.setdefault(chunk.range_number, []).extend(batches)

    def table(self) -> pa.Table:
        """The rows in order. Very many tiny batches are joined: later steps would pay for each of them."""
        batches = [batch for index in sorted(self._by_range) for batch in self._by_range[index]]
        table = pa.Table.from_batches(batches, schema=self._scan.schema)
        if len(batches) > MANY_BATCHES and table.num_rows < TINY_ROWS * len(batches):
            table = table.combine_chunks()
        return table
