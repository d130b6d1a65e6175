"""Reads a log table as it is at one moment.

Planning fixes the moment (the offsets of every bucket) when rows are first read. After that the same scan gives the
same rows in the same order (partition, bucket, offset), however often it is read. The server applies columns, filter
and partitions, and sends nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import pyarrow as pa

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import ReadOptions
from strom.client.plan.cut import cut_now, cut_table, damaged_of, epochs_of, extent_now, starts_and_ends
from strom.client.plan.filters import Filter
from strom.client.plan.log_place import EARLIEST, LATEST, Place, PlaceKind
from strom.client.plan.log_plan import ScanPlan, buckets_of, check_kept, check_place, plan_scan
from strom.client.plan.offsets import Offsets
from strom.client.plan.partition_choice import PartitionChoice, chosen_buckets
from strom.client.read.bucket_read import Unread
from strom.client.read.damage import located_error
from strom.client.read.fetching import ChunkStream
from strom.client.read.log_bucket_read import LogBucketRead
from strom.client.read.row_reader import Fetched
from strom.client.read.row_reader import count as count_rows
from strom.client.read.row_scan import ServerScan
from strom.client.read.scan_chunk import AnyChunk, Chunk
from strom.client.read.source import Source
from strom.errors import Corrupt
from strom.model.bucket import BucketId


class LogScan(ServerScan):
    """The rows of one log between two places.

    With ``plan``, made elsewhere, nothing is planned: exactly these offsets are read. ``as_of``: ``end`` is an instant,
    and the table is read as it was then; Expired when a bucket keeps nothing from before it.
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
        unflushed: Callable[[], bool] | None = None,
        plan: ScanPlan | None = None,
    ) -> None:
        super().__init__(
            cluster,
            table,
            columns=columns,
            where=where,
            limit=limit,
            options=options,
            before=before,
            unflushed=unflushed,
        )
        self._start, self._end = start, end
        self._as_of = as_of
        self._partitions = partitions
        self._plan = plan
        self._given = plan is not None

    @property
    def streaming_limit(self) -> int | None:
        """The number of rows after which reading stops. None where the plan holds exactly the rows."""
        return None if self._plan is not None and self._plan_is_exact(self._plan) else self.limit

    def _plan_is_exact(self, plan: ScanPlan) -> bool:
        """Whether the offsets of a plan are the rows of this scan."""
        return self._where is None and plan.exact

    async def plan(self) -> ScanPlan:
        """The offsets this scan reads, fixed on the first call."""
        if self._plan is None:
            if self._before is not None:
                await self._before()
            self._plan = self._limited(await self._make_plan())
        return self._plan

    def _limited(self, plan: ScanPlan) -> ScanPlan:
        return plan.limited(self.limit) if self._plan_is_exact(plan) else plan

    async def _make_plan(self) -> ScanPlan:
        cluster, table = self._source.cluster, self._source.table
        predicate = None if self._where is None else self._where.predicate
        buckets = await chosen_buckets(cluster, table, self._partitions, predicate)
        for place in (self._start, self._end):
            check_place(place, buckets)
        first, last, epochs, damaged = await self._ends(buckets)
        starts = (
            first if self._start.kind is PlaceKind.EARLIEST else await self._offsets(self._start, buckets)
        )
        ends = last if self._end.kind is PlaceKind.LATEST else await self._offsets(self._end, buckets)
        if self._as_of:
            check_kept(table, first, last, ends)
        return plan_scan(
            table, buckets, first=first, last=last, starts=starts, ends=ends, epochs=epochs, damaged=damaged
        )

    async def _offsets(
        self, place: Place, buckets: Sequence[tuple[BucketId, str | None]]
    ) -> Mapping[BucketId, int]:
        return await Offsets(self._source.cluster, self._source.table).at(place, buckets)

    async def _ends(
        self, buckets: Sequence[tuple[BucketId, str | None]]
    ) -> tuple[Mapping[BucketId, int], Mapping[BucketId, int], Mapping[BucketId, int], set[BucketId]]:
        """Where the buckets begin and end, in which epochs, and which have marks of damage.

        A scan up to now holds whole transactions only.
        """
        cluster, table = self._source.cluster, self._source.table
        asked = [bucket for bucket, _ in buckets]
        if self._end.kind is PlaceKind.LATEST:
            cuts = await cut_table(cluster, table, asked)
        else:
            cuts = await extent_now(cluster, table, asked)
        if cuts is None:
            return *await Offsets(cluster, table).ends(buckets), {}, set()
        epochs = epochs_of(cuts) if self._end.kind is PlaceKind.LATEST else {}
        return *starts_and_ends(cuts), epochs, damaged_of(cuts)

    def _plan_now(self) -> ScanPlan | None:
        """The plan of all that a log without partitions holds now, made in this thread; None where the loop has to."""
        source, unflushed = self._source, self._unflushed
        everything = self._start.kind is PlaceKind.EARLIEST and self._end.kind is PlaceKind.LATEST
        if source.table.partitioned or self._partitions is not None or not everything or self._as_of:
            return None
        if self._before is not None and (unflushed is None or unflushed()):
            return None
        buckets = list(buckets_of(source.table, None))
        cuts = cut_now(source.cluster, source.table, [bucket for bucket, _ in buckets])
        if cuts is None:
            return None
        first, last = starts_and_ends(cuts)
        plan = plan_scan(
            source.table,
            buckets,
            first=first,
            last=last,
            starts=first,
            ends=last,
            epochs=epochs_of(cuts),
            damaged=damaged_of(cuts),
        )
        return self._limited(plan)

    def stream_now(self, *, ordered: bool) -> ChunkStream | None:
        """``stream`` for a blocking thread, without the loop; None where only the loop can plan."""
        if self._given:
            return None
        if self._plan is None:
            self._plan = self._plan_now()
        return None if self._plan is None else self._stream(self._plan, self._source, ordered=ordered)

    async def stream(self, *, ordered: bool) -> ChunkStream:
        """The chunks of this scan, to be passed to ``read`` one by one."""
        plan = await self.plan()
        if self._given:
            await self._find_leaders(one.bucket for one in plan.ranges)
        return self._stream(plan, self._source, ordered=ordered)

    def _stream(self, plan: ScanPlan, source: Source, *, ordered: bool) -> ChunkStream:
        followers = source.cluster.options.followers(planned_before=self._given)
        unread = [
            Unread(LogBucketRead(source, number, one, followers=followers), one.start)
            for number, one in enumerate(plan.ranges)
            if one.start < one.end
        ]
        return ChunkStream(unread, parallel=source.options.parallel_buckets, ordered=ordered, direct=True)

    def read(self, chunk: AnyChunk) -> list[pa.RecordBatch]:
        """The rows of a chunk; any thread."""
        assert isinstance(chunk, Chunk)
        try:
            return self._source.reader.read_all(chunk.batches, start=chunk.start, end=chunk.end)
        except Corrupt as error:
            raise located_error(self._source.table, self._bucket_of(chunk), error) from error

    def _bucket_of(self, chunk: Chunk) -> BucketId:
        assert self._plan is not None
        return self._plan.ranges[chunk.range_number].bucket

    def _read_each(self, chunk: Chunk) -> list[Fetched]:
        """The rows of each batch of a chunk, without batches that have none."""
        reader = self._source.reader
        try:
            found = [reader.read(batch, start=chunk.start, end=chunk.end) for batch in chunk.batches]
        except Corrupt as error:
            raise located_error(self._source.table, self._bucket_of(chunk), error) from error
        return [one for one in found if one is not None]

    async def count(self) -> int:
        """The number of rows. Where the plan does not tell (a filter, marks of damage), one cheap column is read."""
        plan = await self.plan()
        if self._plan_is_exact(plan):
            return plan.rows
        rows = 0
        schema = self._source.table.schema
        source = self._only(schema.names[0] if self._where is None else self._where.cheapest_column(schema))
        stream = self._stream(plan, source, ordered=False)
        try:
            while (chunk := await stream.next()) is not None:
                rows += sum(count_rows(batch, start=chunk.start, end=chunk.end) for batch in chunk.batches)
        finally:
            await stream.close()
        return rows if self.limit is None else min(rows, self.limit)
