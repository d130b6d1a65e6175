"""Follows a table: every batch as it becomes readable, without end.

One long-polling request per server covers all of its buckets, and the next one leaves before the last answer is
decoded, so a row reaches the reader in one hop. The rows of a bucket come in order, each once. New partitions are
discovered periodically and read from their beginning.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from strom.client.cluster.address import Address
from strom.client.cluster.options import ReadOptions
from strom.client.cluster.retry import MISPLACED, PASSING
from strom.client.plan.log_place import EARLIEST, Place
from strom.client.plan.log_plan import check_place
from strom.client.plan.offsets import Offsets
from strom.client.plan.partition_choice import PartitionChoice, chosen_buckets
from strom.client.read.damage import located_error
from strom.client.read.direct_tail import DirectTail
from strom.client.read.row_reader import Encoded
from strom.client.read.source import Source
from strom.client.read.tail_batch import TailBatch
from strom.errors import Corrupt, LeaderNotAvailable, PartitionNotFound, StromError
from strom.model.bucket import BucketId
from strom.model.filters.predicate import Predicate
from strom.protocol.api_keys import FETCH_ROWS
from strom.protocol.error_codes import error_of
from strom.protocol.messages.own import (
    FetchRowsBucketRequest,
    FetchRowsBucketResponse,
    FetchRowsRequest,
    FetchRowsResponse,
)
from strom.rpc.promise import Promise
from strom.runtime.tasks import Tasks

EPOCH_UNKNOWN = -2


@dataclass(eq=False)
class Cursor:
    """The tail's position in one bucket."""

    bucket: BucketId
    partition: str | None
    offset: int
    """The next offset to request."""
    delivered: int
    """The next offset the reader has not seen."""
    epoch: int = EPOCH_UNKNOWN
    """Of the record before ``offset``: whoever leads next shows that it has the same one."""


class Arrived(NamedTuple):
    """A batch that arrived, not decoded yet."""

    cursor: Cursor
    start: int
    """Rows before this offset were already delivered."""
    encoded: Encoded


class _Server:
    """One server that is being polled, and the request that is sent to it repeatedly."""

    def __init__(self, address: Address | None) -> None:
        self.address = address
        self.failures = 0
        """Since the last answer."""
        self.cursors: list[Cursor] = []
        self.buckets: list[FetchRowsBucketRequest] = []
        self.request: FetchRowsRequest | None = None
        self.over: asyncio.Future[FetchRowsResponse | None]
        """Resolved when polling needs a task again."""


class LogTail:
    """A tail of a log from a place on; ``open`` resolves the offsets, then ``next`` waits for rows."""

    def __init__(
        self,
        source: Source,
        *,
        start: Place,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None = None,
        predicate: Predicate | None = None,
    ) -> None:
        self._source = source
        self._cluster = source.cluster
        self._table = source.table
        self._start = start
        self._choice = partitions
        self._predicate = predicate
        self._cursors: dict[BucketId, Cursor] = {}
        self._tasks = Tasks()
        self._followed: set[Address | None] = set()
        self._turn = 0
        self._arrived: deque[Arrived] = deque()
        self._arrived_bytes = 0
        """Written only by the loop; ``_taken_bytes`` only by the reader, which may be another thread."""
        self._taken_bytes = 0
        self._failure: Exception | None = None
        self._news = asyncio.Event()
        self.on_news: Callable[[], None] | None = None
        """Called on the loop whenever the reader should look; a blocking reader waits outside the loop."""
        self.by_thread = False
        """Whether the reader is a blocking thread, which then receives by itself where it can (``direct``)."""
        self.direct: DirectTail | None = None
        """While this is set, the loop sends no requests."""
        self._room = asyncio.Event()
        self._holding = False
        self._opened = False
        self._closed = False

    @property
    def positions(self) -> dict[tuple[str | None, int], int]:
        """The reader's position in every bucket, usable as ``start=`` to continue from here."""
        return {(one.partition, one.bucket.bucket): one.delivered for one in list(self._cursors.values())}

    async def open(self, start: Place | None = None) -> None:
        """Fix where the tail begins: it sees every row appended after this. ``start`` overrides the place given before,
        and may name buckets that are gone."""
        if self._opened:
            return
        self._opened = True
        buckets = await self._buckets()
        if start is None:
            check_place(self._start, buckets)
        await self._begin(buckets, start or self._start)
        if self._table.partitioned:
            self._tasks.spawn(self._discover(), f"look for new partitions of {self._table.path}")

    async def _begin(self, buckets: Sequence[tuple[BucketId, str | None]], place: Place) -> None:
        """Start following these buckets."""
        starts = await Offsets(self._cluster, self._table).at(place, buckets)
        for bucket, partition in buckets:
            self._cursors[bucket] = Cursor(bucket, partition, starts[bucket], starts[bucket])
        if not (self.by_thread and self._follow_directly()):
            self._follow()

    # --- the reader's side ------------------------------------------------------------------------------------

    async def arrival(self, timeout_s: float | None = None) -> Arrived | None:
        """The next batch, to be passed to ``read``; None on timeout or after ``close``."""
        await self.open()
        if not self._arrived and self._failure is None and not self._closed:
            self._news.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
            except TimeoutError:
                return None
        arrived = self.take()
        if self.can_go_on:
            self.go_on()
        if arrived is None and self._failure is not None:
            await self.close()
            raise self._failure
        return arrived

    def take(self) -> Arrived | None:
        """The next batch that has arrived, if any. Callable from any thread, but only from one."""
        if not self._arrived:
            return None
        arrived = self._arrived.popleft()
        self._taken_bytes += arrived.encoded[0].size
        return arrived

    @property
    def _full(self) -> bool:
        """Whether the reader is too far behind."""
        return self._arrived_bytes - self._taken_bytes >= self._source.options.buffered_bytes_max

    @property
    def has_news(self) -> bool:
        """Whether the reader should look: a batch has arrived, or none will."""
        return bool(self._arrived) or self.ended

    @property
    def ended(self) -> bool:
        """Whether the tail failed or was closed."""
        return self._failure is not None or self._closed

    @property
    def can_go_on(self) -> bool:
        """Whether the tail stopped fetching and the reader has caught up: then call ``go_on``."""
        return self._holding and not self._full

    def go_on(self) -> None:
        """Resume fetching; on the loop."""
        self._room.set()

    def read(self, arrived: Arrived) -> TailBatch | None:
        """The rows of a batch, in any thread; None when all were already delivered."""
        cursor, start, encoded = arrived
        try:
            fetched = self._source.reader.read(encoded, start=start, end=None)
        except Corrupt as error:
            raise located_error(self._source.table, cursor.bucket, error) from error
        cursor.delivered = max(cursor.delivered, encoded[0].next_offset)
        return None if fetched is None else TailBatch(fetched, cursor.bucket, cursor.partition)

    async def next(self, timeout_s: float | None = None) -> TailBatch | None:
        """The next rows; None on timeout or after ``close``."""
        while (arrived := await self.arrival(timeout_s)) is not None:
            batch = self.read(arrived)
            if batch is not None:
                return batch
        return None

    async def close(self) -> None:
        """Stop following."""
        self._closed = True
        if self.direct is not None:
            self.direct.close()
        self._announce()
        await self._tasks.close()

    # --- following --------------------------------------------------------------------------------------------

    async def follow_by_loop(self) -> None:
        """The reading thread cannot continue alone: from here on the loop fetches."""
        direct, self.direct, self.by_thread = self.direct, None, False
        if direct is not None:
            direct.close()
        if not self._closed:
            self._follow()

    def _follow_directly(self) -> bool:
        """Leave fetching to the reading thread, if one server leads all buckets there will ever be."""
        addresses = list(self._by_server())
        calls, address = self._cluster.direct, addresses[0] if len(addresses) == 1 else None
        if self._table.partitioned or calls is None or address is None:
            return False
        server = _Server(address)
        self.direct = DirectTail(
            calls,
            address,
            request=lambda: self._request(server, list(self._cursors.values())),
            take=self._take_known,
            timeout_s=self._timeout_ms / 1000,
        )
        return True

    def _follow(self) -> None:
        """Make sure that every server that leads one of our buckets is being polled."""
        for address in self._by_server():
            if address not in self._followed:
                self._followed.add(address)
                self._tasks.spawn(self._follow_server(address), f"tail {self._table.path} at {address}")

    def _by_server(self) -> dict[Address | None, list[Cursor]]:
        found: dict[Address | None, list[Cursor]] = {}
        for cursor in self._cursors.values():
            found.setdefault(self._cluster.metadata.leader(cursor.bucket), []).append(cursor)
        return found

    async def _follow_server(self, address: Address | None) -> None:
        """Poll one server as long as it leads any of our buckets. None stands for buckets without a known leader."""
        server = _Server(address)
        try:
            while cursors := self._by_server().get(address):
                try:
                    await self._have_room()
                    await self._take_all(await self._ask_first(server, cursors))
                    server.failures = 0
                    while (answer := await self._ask_on(server)) is not None:
                        await self._take_all(answer)
                except PASSING as error:
                    server.failures += 1
                    await self._recover(error, cursors, server.failures)
        except Exception as error:
            self._fail(error)
        finally:
            self._followed.discard(address)

    async def _have_room(self) -> None:
        while self._full:
            self._room.clear()
            self._holding = True
            # Checked again: the reader may have caught up before it could see that we hold.
            if self._full:
                await self._room.wait()
        self._holding = False

    async def _ask_first(self, server: _Server, cursors: list[Cursor]) -> FetchRowsResponse:
        """One long-polling request for all buckets of a server; connects if necessary."""
        if server.address is None:
            raise LeaderNotAvailable(f"bucket {cursors[0].bucket} has no leader right now")
        request = self._request(server, cursors)
        return await self._cluster.call(
            server.address, FETCH_ROWS, request, lane="tail", timeout_ms=self._timeout_ms
        )

    async def _ask_on(self, server: _Server) -> FetchRowsResponse | None:
        """Poll without a task: each answer is taken, and the next request sent, in the socket's callback.

        Returns an answer that needs more than that (a schema has to be learned), or None when the caller has to check
        again: no room, no connection, or other buckets.
        """
        server.over = asyncio.get_running_loop().create_future()
        self._ask(server)
        return await server.over

    def _ask(self, server: _Server) -> None:
        cursors = self._by_server().get(server.address)
        asked = None
        if server.address is not None and cursors and not self._full:
            asked = self._cluster.start(
                server.address,
                FETCH_ROWS,
                self._request(server, cursors),
                lane="tail",
                timeout_ms=self._timeout_ms,
            )
        if asked is None:
            server.over.set_result(None)
        else:
            asked.add_done_callback(lambda answered: self._answered(server, answered))

    def _answered(self, server: _Server, answered: Promise[FetchRowsResponse]) -> None:
        if server.over.done():
            return  # closed meanwhile
        try:
            answer = answered.result()
            if not self._take_known(answer):
                server.over.set_result(answer)
                return
            server.failures = 0
            self._ask(server)
        except Exception as error:
            server.over.set_exception(error)

    @property
    def _timeout_ms(self) -> int:
        return self._cluster.options.request_timeout_ms + self._source.options.wait_ms

    def _request(self, server: _Server, cursors: list[Cursor]) -> FetchRowsRequest:
        """The next request: the previous one with new offsets, as long as the buckets are the same."""
        options = self._source.options
        if cursors != server.cursors:
            server.cursors = cursors
            server.buckets = [_bucket_request(one, options) for one in cursors]
            server.request = self._source.request(server.buckets, wait_ms=options.wait_ms)
        assert server.request is not None
        for cursor, bucket in zip(cursors, server.buckets, strict=True):
            bucket.fetch_offset, bucket.epoch_before = cursor.offset, cursor.epoch
        if len(cursors) > 1:
            # Answers are limited in size: rotate, so that no bucket is always last.
            self._turn += 1
            first = self._turn % len(cursors)
            server.request.buckets_req = [*server.buckets[first:], *server.buckets[:first]]
        self._source.statistics.requests += 1
        return server.request

    # --- answers ----------------------------------------------------------------------------------------------

    def _take_known(self, response: FetchRowsResponse) -> bool:
        """Take all batches of an answer; False, and nothing taken, when a schema is not known yet."""
        taken = []
        problem = None
        for answer in response.buckets_resp:
            cursor = self._cursor_of(answer)
            if cursor is None:
                continue
            if answer.error_code:
                problem = error_of(answer.error_code, answer.error_message)
                continue
            batches = self._source.batches_of(answer)
            if batches is None:
                return False
            taken.append((cursor, answer, batches))
        for one in taken:
            self._take(*one)
        if problem is not None:
            raise problem
        return True

    async def _take_all(self, response: FetchRowsResponse) -> None:
        """Take all batches of an answer, after learning the schemas they need."""
        while not self._take_known(response):
            for answer in response.buckets_resp:
                await self._source.learn(answer.records)

    def _cursor_of(self, answer: FetchRowsBucketResponse) -> Cursor | None:
        """The cursor of an answer; None when its partition was dropped meanwhile."""
        return self._cursors.get(BucketId(self._table.table_id, answer.partition_id, answer.bucket_id))

    def _take(self, cursor: Cursor, answer: FetchRowsBucketResponse, batches: Sequence[Encoded]) -> None:
        start = cursor.offset
        assert answer.next_offset is not None
        cursor.offset = answer.next_offset
        if answer.epoch is not None:
            cursor.epoch = answer.epoch
        for encoded in batches:
            self._arrived.append(Arrived(cursor, start, encoded))
            self._arrived_bytes += encoded[0].size
        if batches:
            self._announce()

    async def _recover(self, error: StromError, cursors: Sequence[Cursor], failures: int) -> None:
        """After a transient error: wait, then refresh the leaders."""
        self._cluster.retrying.patience.hear(error)
        await asyncio.sleep(self._cluster.retrying.backoff.seconds(failures))
        if not isinstance(error, MISPLACED):
            return
        try:
            await self._cluster.refresh(self._table, [cursor.bucket for cursor in cursors])
        except PartitionNotFound:
            await self._look_for_partitions()
        self._follow()

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._announce()

    def _announce(self) -> None:
        self._news.set()
        if self.on_news is not None:
            self.on_news()

    # --- partitions -------------------------------------------------------------------------------------------

    async def _buckets(self) -> list[tuple[BucketId, str | None]]:
        return await chosen_buckets(self._cluster, self._table, self._choice, self._predicate)

    async def _discover(self) -> None:
        while True:
            await asyncio.sleep(self._source.options.discovery_ms / 1000)
            try:
                await self._look_for_partitions()
            except PASSING:
                continue  # try again next time
            except Exception as error:
                self._fail(error)
                return

    async def _look_for_partitions(self) -> None:
        """Follow new partitions from their beginning; drop those that are gone."""
        try:
            buckets = await self._buckets()
        except PartitionNotFound:
            buckets = []  # the chosen one is gone
        there = {bucket for bucket, _ in buckets}
        for bucket in self._cursors.keys() - there:
            del self._cursors[bucket]
        new = [(bucket, partition) for bucket, partition in buckets if bucket not in self._cursors]
        if new:
            try:
                await self._begin(new, EARLIEST)
            except PartitionNotFound:
                pass  # one of them is gone again: the next round finds the others


def _bucket_request(cursor: Cursor, options: ReadOptions) -> FetchRowsBucketRequest:
    return FetchRowsBucketRequest(
        partition_id=cursor.bucket.partition_id,
        bucket_id=cursor.bucket.bucket,
        fetch_offset=cursor.offset,
        max_bytes=options.fetch_bytes_max,
    )
