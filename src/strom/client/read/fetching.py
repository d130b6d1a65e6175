"""Reads the buckets of a scan on the client's loop: several at once, each one answer ahead of its reader, with retries.

Within a bucket the next request leaves before the last answer is looked at. Memory is bounded by two answers for each
bucket under way. Answers are handed out as they came from the wire (``Chunk``): the reader's thread decodes them, not
the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

from strom.client.cluster.address import Address
from strom.client.read.bucket_read import BucketRead, Unread
from strom.client.read.scan_chunk import Chunk
from strom.errors import StromError


class _Answer(NamedTuple):
    """An answer, and the offset it reached."""

    message: Any
    reached: int


class BucketFetch:
    """Drives one bucket read, one answer ahead of its reader."""

    def __init__(self, unread: Unread) -> None:
        self._read: BucketRead = unread.read
        self._offset = unread.offset
        self._ahead: asyncio.Task[_Answer] | None = None

    def begin(self) -> None:
        """Ask for what comes next, unless that happened or nothing is left."""
        if self._ahead is None and self._offset < self._read.end:
            task = asyncio.get_running_loop().create_task(self._ask(self._offset))
            task.add_done_callback(_looked_at)
            self._ahead = task

    @property
    def waiting(self) -> asyncio.Task[_Answer] | None:
        """The request under way; None when all is read."""
        return self._ahead

    async def next(self) -> Chunk | None:
        """The next chunk; None at the end."""
        self.begin()
        if self._ahead is None:
            return None
        answer = await self._ahead
        self._ahead = None
        offset, self._offset = self._offset, answer.reached
        self.begin()
        return await self._read.learned_chunk(offset, answer.message)

    async def cancel(self) -> None:
        """Stop."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.gather(self._ahead, return_exceptions=True)

    async def _ask(self, offset: int) -> _Answer:
        """Ask, again while errors pass."""
        source = self._read.source
        return await source.cluster.at_leaders(
            source.table, [self._read.bucket], lambda: self._attempt(offset)
        )

    async def _attempt(self, offset: int) -> _Answer:
        read = self._read
        address = read.address()
        if read.followers:
            try:
                return await self._ask_at(address, offset)
            except StromError as error:
                read.leave(address, error)
                address = read.address()
        return await self._ask_at(address, offset)

    async def _ask_at(self, address: Address, offset: int) -> _Answer:
        read, cluster = self._read, self._read.source.cluster
        request = read.request(offset, read.loop_bytes(offset))
        answer = await cluster.call(address, read.api, request, lane="scan", timeout_ms=read.timeout_ms)
        return _Answer(answer, read.reached(offset, answer))


class ChunkStream:
    """The chunks of many buckets: in the order of the plan, or as they come."""

    def __init__(
        self, unread: Sequence[Unread], *, parallel: int, ordered: bool, direct: bool = False
    ) -> None:
        self._waiting = list(reversed(unread))
        self._active: list[BucketFetch] = []
        self._parallel = parallel
        self._ordered = ordered
        self.direct: Sequence[Unread] | None = unread if direct else None
        """For a thread that rather reads all of this by itself, and then does not begin here; None where it cannot."""

    async def next(self) -> Chunk | None:
        """The next chunk; None when all buckets are read."""
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
            fetch = BucketFetch(self._waiting.pop())
            fetch.begin()
            self._active.append(fetch)

    async def _first_ready(self) -> BucketFetch:
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
    """Nobody waited for this answer (the scan was left early): asyncio must not complain about its error."""
    if not task.cancelled():
        task.exception()
