"""Reads a log table as it is at one moment.

The moment is fixed by planning (offsets of every bucket), which happens when rows are first asked for; after that
the same scan gives the same rows in the same order (partition, bucket, offset), however often it is read.
Columns, filter and partitions are applied on the server; nothing else is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import pyarrow as pa

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import ReadOptions
from strom.client.plan.cut import table_ends
from strom.client.plan.filters import Filter, prune
from strom.client.plan.log_place import EARLIEST, LATEST, Place
from strom.client.plan.log_plan import ScanPlan, buckets_of, check_kept, check_place, plan_scan
from strom.client.plan.offsets import Offsets
from strom.client.plan.partition_choice import PartitionChoice, choose_partitions
from strom.client.read.damage import told_where
from strom.client.read.fetching import ChunkStream, RangeFetch
from strom.client.read.log_bucket_read import LogQuestion
from strom.client.read.row_reader import Fetched, RowReader
from strom.client.read.row_reader import count as count_rows
from strom.client.read.row_scan import RowScan
from strom.client.read.scan_chunk import AnyChunk, Chunk
from strom.client.read.source import ReadStatistics, Source
from strom.errors import Corrupt, InvalidRequest
from strom.model.bucket import BucketId


class LogScan(RowScan):
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
