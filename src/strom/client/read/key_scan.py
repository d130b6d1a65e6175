"""Reads a primary-key table as it is at one instant: every live row once, at column speed.

Planned first (``key_plan.py``), then fetched slice by slice, several buckets at once; columns, filter and limit are the
server's work. An instant that the server no longer keeps is planned again while none of its rows was delivered. A
filter that names whole keys (``id = 7``, ``id in (…)``) becomes a lookup.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pyarrow as pa

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import ReadOptions
from strom.client.lookup.lookups import Lookups
from strom.client.plan.filters import Filter
from strom.client.plan.key_filter import Named, keys_named
from strom.client.plan.key_plan import KeyScanPlan, Planner
from strom.client.plan.log_place import LATEST, Place, PlaceKind
from strom.client.plan.partition_choice import PartitionChoice
from strom.client.read.bucket_read import Unread
from strom.client.read.fetching import ChunkStream
from strom.client.read.key_bucket_read import KeyBucketRead
from strom.client.read.row_scan import ServerScan
from strom.client.read.scan_chunk import AnyChunk, Chunk, LookedUpChunk
from strom.client.read.source import Source
from strom.errors import Expired

PLANS_MAX = 5
"""How many plans may expire before the first row before that is an error."""


class KeyScan(ServerScan):
    """The live rows of one table at an instant.

    With ``plan``, made elsewhere, nothing is planned: exactly these instants are read, or ``Expired``.
    """

    def __init__(
        self,
        cluster: Cluster,
        table: TableInfo,
        *,
        columns: Sequence[str] | None = None,
        where: Filter | None = None,
        at: Place = LATEST,
        limit: int | None = None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None = None,
        options: ReadOptions | None = None,
        lookups: Lookups,
        before: Callable[[], Awaitable[None]] | None = None,
        plan: KeyScanPlan | None = None,
    ) -> None:
        super().__init__(
            cluster, table, columns=columns, where=where, limit=limit, options=options, before=before
        )
        self._at = at
        self._lookups = lookups
        self._planner = Planner(cluster, table, where, partitions)
        self._plan = plan
        self._given = plan is not None
        now = at.kind is PlaceKind.LATEST and partitions is None and plan is None
        self._named = keys_named(table, where) if now else None
        self._looked_up: pa.RecordBatch | None = None

    @property
    def streaming_limit(self) -> int | None:
        """The number of rows after which reading stops."""
        return self.limit

    @property
    def _parted(self) -> bool:
        """Whether only some rows of an instant are wanted: then an answer may hold more."""
        return self._given and self._plan is not None and not all(one.whole for one in self._plan.instants)

    async def plan(self) -> KeyScanPlan:
        """The instant this scan reads, fixed on the first call."""
        if self._plan is None:
            if self._before is not None:
                await self._before()
            self._plan = await self._planner.plan(self._at)
        return self._plan

    async def plan_again(self, expired: Expired) -> KeyScanPlan:
        """A later instant, after the server let go of the planned one; raises where the caller chose the instant."""
        if self._at.kind is not PlaceKind.LATEST or self._given:
            raise expired
        self._plan = None
        return await self.plan()

    # --- rows -------------------------------------------------------------------------------------------------

    async def stream(self, *, ordered: bool) -> KeyStream | LookedUp:
        """The chunks of this scan, to be passed to ``read`` one by one."""
        if self._named is not None:
            return LookedUp(await self._look_up(self._named))
        plan = await self.plan()
        if self._given:
            await self._find_leaders(one.bucket for one in plan.instants)
        return KeyStream(self, plan, self._source, ordered=ordered)

    def chunks(self, plan: KeyScanPlan, source: Source, *, ordered: bool) -> ChunkStream:
        """The chunks of one plan."""
        offsets, limit = self._parted, self.limit
        followers = source.cluster.options.followers(planned_before=self._given)
        unread = [
            Unread(
                KeyBucketRead(source, number, one, offsets=offsets, limit=limit, followers=followers),
                one.start,
            )
            for number, one in enumerate(plan.instants)
            if one.start < one.until
        ]
        parallel = 1 if limit is not None else source.options.parallel_buckets
        # A thread reads bucket after bucket. With a limit it would often ask for more than is wanted, and lose that
        # connection. With a filter the servers have more to do than the client: the loop asks several at once.
        direct = limit is None and (self._where is None or len(plan.instants) == 1)
        return ChunkStream(unread, parallel=parallel, ordered=ordered, direct=direct)

    def read(self, chunk: AnyChunk) -> list[pa.RecordBatch]:
        """The rows of a chunk; any thread."""
        if isinstance(chunk, LookedUpChunk):
            return [chunk.rows]
        assert isinstance(chunk, Chunk)
        if not self._parted:  # all rows: their offsets were not requested
            return self._source.reader.read_all(chunk.batches, start=0, end=None)
        return self._source.reader.read_all(chunk.batches, start=chunk.start, end=chunk.end)

    async def count(self) -> int:
        """The number of rows. Reads none without a filter; with one, only the cheapest column."""
        if self._named is not None:
            rows: int = (await self._look_up(self._named)).num_rows
        else:
            plan = await self.plan()
            known = plan.rows if self._where is None else None
            rows = await self._count_by_reading(plan) if known is None else known
        return rows if self.limit is None else min(rows, self.limit)

    async def _count_by_reading(self, plan: KeyScanPlan) -> int:
        schema = self._source.table.schema
        column = schema.primary_key[0] if self._where is None else self._where.cheapest_column(schema)
        stream = KeyStream(self, plan, self._only(column), ordered=False)
        rows = 0
        try:
            while (chunk := await stream.next()) is not None:
                rows += sum(header.record_count for header, _ in chunk.batches)
        finally:
            await stream.close()
        return rows

    async def _look_up(self, named: Named) -> pa.RecordBatch:
        """The rows of the keys that the filter names, looked up once."""
        if self._looked_up is None:
            if self._before is not None:
                await self._before()
            needed = [*self.schema.names, *sorted(named.columns - set(self.schema.names))]
            found = await self._lookups.rows_of(named.keys, needed)
            self._looked_up = named.filtered(found).select(self.schema.names)
        return self._looked_up


class KeyStream:
    """The chunks of a plan, or of a later plan if this one expires before its first chunk."""

    def __init__(self, scan: KeyScan, plan: KeyScanPlan, source: Source, *, ordered: bool) -> None:
        self._scan = scan
        self._source = source
        self._ordered = ordered
        self._stream = scan.chunks(plan, source, ordered=ordered)
        self._plans = 1
        self._delivered = False

    async def next(self) -> Chunk | None:
        """The next chunk; None when all is read."""
        while True:
            try:
                chunk = await self._stream.next()
            except Expired as error:
                if self._delivered or self._plans == PLANS_MAX:
                    raise
                self._plans += 1
                await self._stream.close()
                plan = await self._scan.plan_again(error)
                self._stream = self._scan.chunks(plan, self._source, ordered=self._ordered)
                continue
            self._delivered = True
            return chunk

    @property
    def direct(self) -> Sequence[Unread] | None:
        """What a blocking thread may read by itself instead."""
        return self._stream.direct

    async def close(self) -> None:
        """Stop all requests."""
        await self._stream.close()


class LookedUp:
    """Rows that were looked up, as a stream."""

    direct: None = None

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows: pa.RecordBatch | None = rows

    async def next(self) -> LookedUpChunk | None:
        """The rows, then None."""
        rows, self._rows = self._rows, None
        return None if rows is None else LookedUpChunk(0, rows)

    async def close(self) -> None:
        """Nothing is open."""
