"""Fetches the ranges of a plan: several buckets at once, each one answer ahead of its reader.

Within a range the next request leaves before the last answer is looked at. Memory is bounded by the number of ranges
under way times two answers. Answers are handed out as they came from the wire (``Chunk``), so that whoever
reads the rows decodes them, not the event loop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from strom.client.cluster.connections import Lane
from strom.client.cluster.retry import MISPLACED
from strom.client.plan.log_plan import BucketRange
from strom.client.read.bucket_read import Question
from strom.client.read.scan_chunk import Chunk
from strom.client.read.source import Source
from strom.errors import InvalidRequest, LeaderNotAvailable, StromError
from strom.model.bucket import BucketId
from strom.protocol.api_keys import FETCH_ROWS
from strom.protocol.error_codes import error_of
from strom.protocol.messages.own import (
    FetchRowsBucketRequest,
    FetchRowsBucketResponse,
)

Answer = TypeVar("Answer")


class Fetch(ABC, Generic[Answer]):
    """Fetches one bucket's part from its beginning to its end, one answer ahead of its reader."""

    def __init__(self) -> None:
        self._ahead: asyncio.Task[Answer] | None = None

    def begin(self) -> None:
        """Ask for what comes next, if anything does and it was not asked for."""
        if self._ahead is None and not self.done:
            task = asyncio.get_running_loop().create_task(self._ask())
            task.add_done_callback(_looked_at)
            self._ahead = task

    @property
    def waiting(self) -> asyncio.Task[Answer] | None:
        """The request under way; None when all is read."""
        return self._ahead

    async def next(self) -> Chunk | None:
        """The next answer; None at the end."""
        self.begin()
        if self._ahead is None:
            return None
        answer = await self._ahead
        self._ahead = None
        return await self._take(answer)

    async def cancel(self) -> None:
        """Stop."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether nothing is left to ask for."""

    @abstractmethod
    async def _ask(self) -> Answer:
        """Ask for what comes next, again while errors pass."""

    @abstractmethod
    async def _take(self, answer: Answer) -> Chunk:
        """Note where to go on, ``begin`` the next request, and then look at this answer."""


class RangeFetch(Fetch[FetchRowsBucketResponse]):
    """Fetches one range of a log."""

    def __init__(self, source: Source, index: int, wanted: BucketRange) -> None:
        super().__init__()
        self._source = source
        self._index = index
        self._range = wanted
        self._offset = wanted.start

    @property
    def done(self) -> bool:
        return self._offset >= self._range.end

    async def _take(self, answer: FetchRowsBucketResponse) -> Chunk:
        start = self._offset
        assert answer.next_offset is not None
        self._offset = answer.next_offset
        self.begin()
        batches = await self._source.batches_of(answer)
        return Chunk(self._index, start, self._range.end, batches)

    async def _ask(self) -> FetchRowsBucketResponse:
        offset = self._offset
        cluster, bucket = self._source.cluster, self._range.bucket

        async def between(error: StromError) -> None:
            if isinstance(error, MISPLACED):
                await cluster.refresh(self._source.table, [bucket])

        return await cluster.retrying.run(lambda: self._attempt(offset), between=between)

    async def _attempt(self, offset: int) -> FetchRowsBucketResponse:
        source, bucket = self._source, self._range.bucket
        wanted = FetchRowsBucketRequest(
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket,
            fetch_offset=offset,
            max_bytes=source.options.fetch_bytes_max,
            end_offset=self._range.end,
        )
        answer = await fetch_one(source, bucket, wanted, wait_ms=source.options.wait_ms, lane="scan")
        if answer.next_offset is None or answer.next_offset <= offset:
            # The plan's end was readable once. A server that just came back may need a moment to know it again.
            raise LeaderNotAvailable(
                f"bucket {bucket} cannot be read up to offset {self._range.end} right now", bucket=bucket
            )
        return answer


async def fetch_one(
    source: Source, bucket: BucketId, wanted: FetchRowsBucketRequest, *, wait_ms: int, lane: Lane
) -> FetchRowsBucketResponse:
    """Ask the leader of one bucket once."""
    cluster = source.cluster
    source.statistics.requests += 1
    response = await cluster.call(
        cluster.leader(bucket),
        FETCH_ROWS,
        source.request([wanted], wait_ms=wait_ms),
        lane=lane,
        timeout_ms=cluster.options.request_timeout_ms + wait_ms,
    )
    if len(response.buckets_resp) != 1:
        raise InvalidRequest("the server's answer leaves this bucket out", bucket=bucket)
    answer = response.buckets_resp[0]
    if answer.error_code:
        raise error_of(answer.error_code, answer.error_message)
    return answer


class ChunkStream:
    """The chunks of many ranges: in the order of the plan, or as they come."""

    def __init__(
        self,
        fetches: Sequence[Fetch[Any]],
        *,
        parallel: int,
        ordered: bool,
        question: Question | None = None,
    ) -> None:
        self._waiting = list(reversed(fetches))
        self._active: list[Fetch[Any]] = []
        self._parallel = parallel
        self._ordered = ordered
        self.question = question
        """For a thread that would rather ask all of this by itself, and does not begin here; None: it cannot."""

    async def next(self) -> Chunk | None:
        """The next chunk; None when all ranges are read."""
        while True:
            self._fill()
            if not self._active:
                return None
            fetch = self._active[0] if self._ordered else await self._first_ready()
            chunk = await fetch.next()
            if fetch.waiting is None:
                self._active.remove(fetch)
            if chunk is not None:
                return chunk

    def _fill(self) -> None:
        while self._waiting and len(self._active) < self._parallel:
            fetch = self._waiting.pop()
            fetch.begin()
            self._active.append(fetch)

    async def _first_ready(self) -> Fetch[Any]:
        if len(self._active) == 1:
            return self._active[0]
        tasks = {fetch.waiting: fetch for fetch in self._active if fetch.waiting is not None}
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(fetch for task, fetch in tasks.items() if task in done)

    async def close(self) -> None:
        """Stop all requests."""
        active, self._active, self._waiting = self._active, [], []
        for fetch in active:
            await fetch.cancel()


def _looked_at(task: asyncio.Task[Any]) -> None:
    """An answer nobody waited for (the scan was left early) is no reason for a complaint."""
    if not task.cancelled():
        task.exception()
