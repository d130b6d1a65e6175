"""Reads a primary-key table as it is at one instant: every live row once, at column speed.

Planned first (``key_plan.py``), then fetched slice by slice, several buckets at once; columns, filter and limit are the
server's work. An instant that the server no longer keeps is planned anew, while nothing of it was delivered. A filter
that names whole keys (``id = 7``, ``id in (…)``) becomes a lookup.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pyarrow as pa

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import ReadOptions
from strom.client.cluster.retry import MISPLACED
from strom.client.lookup.lookups import Lookups
from strom.client.plan.filters import Filter
from strom.client.plan.key_filter import Named, keys_named
from strom.client.plan.key_plan import Instant, KeyScanPlan, Planner
from strom.client.plan.log_place import LATEST, Place
from strom.client.plan.partition_choice import PartitionChoice
from strom.client.read.bucket_read import Part, Question
from strom.client.read.fetching import ChunkStream, Fetch
from strom.client.read.key_bucket_read import KeyQuestion, leads_nowhere
from strom.client.read.row_reader import Encoded, RowReader
from strom.client.read.row_scan import RowScan
from strom.client.read.scan_chunk import AnyChunk, Chunk, LookedUpChunk
from strom.client.read.source import ReadStatistics
from strom.errors import Expired, InvalidRequest, StromError
from strom.protocol.api_keys import SCAN_ROWS
from strom.protocol.error_codes import error_of
from strom.protocol.message import whole
from strom.protocol.messages.own_keys import ScanRowsRequest, ScanRowsResponse
from strom.record.batch import split

FIRST_BYTES = 1024 * 1024
SLICE_BYTES_MAX = 2 * 1024 * 1024
"""Asked for first, and then. The server reads a slice while the one before it is received: small ones overlap."""

PLANS_MAX = 5
"""How often an instant may expire before the first row before that is an error."""


class KeyScan(RowScan):
    """One question to one table. ``before`` runs before planning: what this client wrote is flushed there.

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
        if limit is not None and limit < 0:
            raise InvalidRequest(f"limit is 0 or more, not {limit}", limit=limit)
        self.cluster = cluster
        self._table = table
        self._where = where
        self._at = at
        self.limit = limit
        self.options = options or ReadOptions()
        self._before = before
        self._lookups = lookups
        self._reader = RowReader(table.schema, columns)
        self._planner = Planner(cluster, table, where, partitions)
        self._plan = plan
        self._given = plan is not None
        free = at == LATEST and partitions is None and plan is None
        self._named = keys_named(table, where) if free else None
        self._looked_up: pa.RecordBatch | None = None
        self.statistics = ReadStatistics()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._reader.arrow

    @property
    def streaming_limit(self) -> int | None:
        """How many rows to stop after while reading."""
        return self.limit

    @property
    def _parted(self) -> bool:
        """Whether only some rows of an instant are wanted: then an answer may hold more."""
        return self._given and self._plan is not None and not all(one.whole for one in self._plan.instants)

    async def plan(self) -> KeyScanPlan:
        """The instant this scan reads, fixed the first time."""
        if self._plan is None:
            if self._before is not None:
                await self._before()
            self._plan = await self._planner.plan(self._at)
        return self._plan

    async def plan_again(self, expired: Expired) -> KeyScanPlan:
        """A later instant, after the server let go of the planned one; not where an instant was asked for."""
        if self._at != LATEST or self._given:
            raise expired
        self._plan = None
        return await self.plan()

    # --- rows -------------------------------------------------------------------------------------------------

    async def stream(self, *, ordered: bool) -> KeyStream | LookedUp:
        """The answers of the servers, to be given to ``read`` one by one."""
        if self._named is not None:
            return LookedUp(await self._look_up(self._named))
        plan = await self.plan()
        if self._given:  # planned elsewhere: who leads may not be known here
            ids = {one.bucket.partition_id for one in plan.instants if one.bucket.partition_id is not None}
            await self.cluster.find_leaders(self._table, sorted(ids))
        return KeyStream(self, plan, self._reader, ordered=ordered)

    def fetches(self, plan: KeyScanPlan, reader: RowReader, *, ordered: bool) -> ChunkStream:
        """The answers for one plan."""
        found = [InstantFetch(self, index, one, reader) for index, one in enumerate(plan.instants)]
        parallel = 1 if self.limit is not None else self.options.parallel_buckets
        question = KeyQuestion(self, plan.instants, reader) if self._asked_directly(plan) else None
        return ChunkStream(found, parallel=parallel, ordered=ordered, question=question)

    def rest(self, instants: Sequence[Instant], parts: Sequence[Part], reader: RowReader) -> ChunkStream:
        """The answers for what others left of a plan."""
        fetches = [InstantFetch(self, one.number, instants[one.number], reader, one.start) for one in parts]
        return ChunkStream(fetches, parallel=self.options.parallel_buckets, ordered=True)

    def _asked_directly(self, plan: KeyScanPlan) -> bool:
        """Whether a thread that blocks gains by asking itself, bucket after bucket.

        With a limit it would often have asked for more than is wanted, and lose that connection. With a filter the
        servers have more to do than the client: it asks several buckets at once.
        """
        return self.limit is None and (self._where is None or len(plan.instants) == 1)

    def read(self, chunk: AnyChunk) -> list[pa.RecordBatch]:
        """The rows of a chunk; any thread."""
        if isinstance(chunk, LookedUpChunk):
            return [chunk.rows]
        assert isinstance(chunk, Chunk)
        if not self._parted:  # all rows, whatever their offsets: nobody asked for them
            return self._reader.read_all(chunk.batches, start=0, end=None)
        return self._reader.read_all(chunk.batches, start=chunk.start, end=chunk.end)

    async def count(self) -> int:
        """How many rows there are. Without a filter no row is read; with one, only the cheapest column."""
        if self._named is not None:
            rows: int = (await self._look_up(self._named)).num_rows
        else:
            plan = await self.plan()
            known = plan.rows if self._where is None else None
            rows = await self._count_by_reading(plan) if known is None else known
        return rows if self.limit is None else min(rows, self.limit)

    async def _count_by_reading(self, plan: KeyScanPlan) -> int:
        schema = self._table.schema
        column = schema.primary_key[0] if self._where is None else self._where.cheapest_column(schema)
        stream = KeyStream(self, plan, RowReader(schema, [column]), ordered=False)
        rows = 0
        try:
            while (chunk := await stream.next()) is not None:
                rows += sum(header.record_count for header, _ in chunk.batches)
        finally:
            await stream.close()
        return rows

    async def _look_up(self, named: Named) -> pa.RecordBatch:
        """The rows of the keys that the filter names; the first time decides."""
        if self._looked_up is None:
            if self._before is not None:
                await self._before()
            needed = [*self.schema.names, *sorted(named.columns - set(self.schema.names))]
            found = await self._lookups.rows_of(named.keys, needed)
            self._looked_up = named.filtered(found).select(self.schema.names)
        return self._looked_up

    # --- one slice --------------------------------------------------------------------------------------------

    def request(
        self, instant: Instant, cursor: int | None, reader: RowReader, max_bytes: int
    ) -> ScanRowsRequest:
        """The message that asks for one slice of one bucket."""
        self.statistics.requests += 1
        schema = self._table.schema
        ids = set(reader.projected_ids)
        return ScanRowsRequest(
            table_id=self._table.table_id,
            partition_id=instant.bucket.partition_id,
            bucket_id=instant.bucket.bucket,
            at=instant.at,
            at_epoch=instant.epoch,
            start=0,
            cursor=cursor,
            columns=[at for at, column in enumerate(schema.columns) if column.id in ids],
            predicate=None if self._where is None else self._where.wire,
            limit=self.limit,
            max_bytes=max_bytes,
            dead=False,
            schema_id=schema.schema_id,
            no_offsets=None if self._parted else True,
        )

    async def slice(self, instant: Instant, cursor: int | None, reader: RowReader) -> ScanRowsResponse:
        """One slice of one bucket, asked for once."""
        most = min(self.options.fetch_bytes_max, FIRST_BYTES if cursor is None else SLICE_BYTES_MAX)
        request = self.request(instant, cursor, reader, most)
        address = self.cluster.leader(instant.bucket)
        answer = await self.cluster.call(address, SCAN_ROWS, request, lane="scan")
        if answer.error_code:
            raise error_of(answer.error_code, answer.error_message)
        return answer

    async def slice_for_sure(
        self, instant: Instant, cursor: int | None, reader: RowReader
    ) -> ScanRowsResponse:
        """The same, again while errors pass."""

        async def between(error: StromError) -> None:
            if isinstance(error, MISPLACED):
                await self.cluster.refresh(self._table, [instant.bucket])

        return await self.cluster.retrying.run(lambda: self.slice(instant, cursor, reader), between=between)

    async def learn(self, batches: Sequence[Encoded], reader: RowReader) -> None:
        """Make sure that batches can be read."""
        for schema_id in {header.schema_id for header, _ in batches}:
            if not reader.knows(schema_id):
                reader.learn(await self.cluster.schema(self._table, schema_id))


class InstantFetch(Fetch[ScanRowsResponse]):
    """Fetches one bucket at one instant."""

    def __init__(
        self, scan: KeyScan, index: int, instant: Instant, reader: RowReader, cursor: int | None = None
    ) -> None:
        super().__init__()
        self._scan = scan
        self._index = index
        self._instant = instant
        self._reader = reader
        self._cursor: int | None = cursor or instant.start or None
        self._end = instant.until
        self._done = instant.start >= self._end

    @property
    def done(self) -> bool:
        return self._done

    async def _ask(self) -> ScanRowsResponse:
        return await self._scan.slice_for_sure(self._instant, self._cursor, self._reader)

    async def _take(self, answer: ScanRowsResponse) -> Chunk:
        if answer.next_cursor is None or answer.next_cursor >= self._end:
            self._done = True
        elif answer.next_cursor <= (self._cursor or 0):
            raise leads_nowhere(self._instant.bucket)
        self._cursor = answer.next_cursor
        self.begin()
        batches = split(whole(answer.records or b""))
        await self._scan.learn(batches, self._reader)
        self._scan.statistics.bytes_fetched += sum([header.size for header, _ in batches])
        return Chunk(self._index, self._instant.start, self._end, batches)


class KeyStream:
    """The chunks of a plan; of a later plan when this one expires before its first chunk."""

    def __init__(self, scan: KeyScan, plan: KeyScanPlan, reader: RowReader, *, ordered: bool) -> None:
        self._scan = scan
        self._reader = reader
        self._ordered = ordered
        self._stream = scan.fetches(plan, reader, ordered=ordered)
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
                self._stream = self._scan.fetches(plan, self._reader, ordered=self._ordered)
                continue
            self._delivered = True
            return chunk

    @property
    def question(self) -> Question | None:
        """For a thread that asks all of this by itself."""
        return self._stream.question

    async def close(self) -> None:
        """Stop all requests."""
        await self._stream.close()


class LookedUp:
    """Rows that are here already, as a stream."""

    question: None = None

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows: pa.RecordBatch | None = rows

    async def next(self) -> LookedUpChunk | None:
        """The rows, then None."""
        rows, self._rows = self._rows, None
        return None if rows is None else LookedUpChunk(0, rows)

    async def close(self) -> None:
        """Nothing is open."""
