"""Reads that may wait: the part that FetchLog and FetchRows share.

A fetch names buckets and offsets. What is there is answered at once; when there is nothing, the fetch waits until
the high watermark of one of its buckets moves or its time is over, and never holds up its connection meanwhile.

Small reads are done on the loop, because a thread would cost more than they do. Larger ones go to the reader threads in
slices, so that a full scan takes turns with everyone else's reads instead of going first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from strom.errors import OffsetOutOfRange, StromError
from strom.model.bucket import BucketId
from strom.protocol.message import Message
from strom.runtime.files import Bytes
from strom.runtime.tasks import Offload
from strom.server.slot import Slot
from strom.server.table_facts import Traffic
from strom.server.tablets import Tablets, wait_for
from strom.tablet.log_tablet import LogTablet

EARLIEST = -2
INLINE_BYTES_MAX = 256 * 1024
SLICE_BYTES = 1024 * 1024
CROWDED_BYTES = 64 * 1024
WAIT_S_MAX = 600.0


@dataclass
class Found:
    """What one read gave."""

    buffers: list[Bytes]
    size: int
    rows: int
    next_offset: int
    bytes_skipped: int = 0
    rows_skipped: int = 0


Read = Callable[[LogTablet, int, int], Found]
"""(tablet, offset, bytes at most) -> what is there. Runs on the loop or in a thread."""


@dataclass
class Wanted:
    """One bucket of a fetch, and what has been found so far."""

    bucket: BucketId
    offset: int
    max_bytes: int
    read: Read
    until: int | None = None
    costly: bool = False
    """Whether even a small read may take long (a row filter decodes)."""
    traffic: Traffic | None = None
    error: StromError | Exception | None = None
    slot: Slot | None = None
    tablet: LogTablet | None = None
    found: Found = field(default_factory=lambda: Found([], 0, 0, 0))

    def count(self) -> None:
        """Count what leaves, in the table's metrics."""
        if self.traffic is not None and self.moved:
            self.traffic.rows_out.inc(self.found.rows)
            self.traffic.bytes_out.inc(self.found.size)
            self.traffic.bytes_skipped.inc(self.found.bytes_skipped)

    @property
    def moved(self) -> bool:
        """Whether there is something to tell: rows, or batches that need not be read again."""
        return self.found.next_offset > self.offset

    @property
    def ended(self) -> bool:
        """Whether everything that was asked for has been given."""
        return self.until is not None and max(self.offset, self.found.next_offset) >= self.until


class Fetches:
    """Performs fetches."""

    def __init__(
        self,
        tablets: Tablets,
        readers: Offload,
        *,
        max_bytes: int,
        crowded: Callable[[], bool] = lambda: False,
    ) -> None:
        self._tablets = tablets
        self._readers = readers
        self._max_bytes = max_bytes
        self._crowded = crowded
        self._turn = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._stopping = False

    def stop(self) -> None:
        """Answer everyone who waits, with what there is."""
        self._stopping = True
        for waiting in list(self._waiting):
            _wake(waiting)

    def fetch(
        self,
        wanted: list[Wanted],
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        answer: Callable[[Sequence[Wanted]], Message],
    ) -> Message | Awaitable[Message]:
        """The answer, at once if there is something or nobody wants to wait."""
        max_bytes = min(max(max_bytes, 1), self._max_bytes)
        min_bytes = max(1, min(min_bytes, max_bytes))
        for one in wanted:
            self._find(one)
        if all(one.tablet is not None or one.error is not None for one in wanted):
            if not any(self._readable(one) for one in wanted):
                if self._satisfied(wanted, min_bytes) or max_wait_ms <= 0:
                    return answer(wanted)
            elif not any(self._leaves_loop(one, max_bytes) for one in wanted):
                self._read_all_inline(wanted, max_bytes)
                if self._satisfied(wanted, min_bytes) or max_wait_ms <= 0:
                    return answer(wanted)
        return self._fetch_later(wanted, max_bytes, min_bytes, max_wait_ms, answer)

    async def _fetch_later(
        self,
        wanted: list[Wanted],
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        answer: Callable[[Sequence[Wanted]], Message],
    ) -> Message:
        deadline = asyncio.get_running_loop().time() + min(max_wait_ms / 1000, WAIT_S_MAX)
        for one in wanted:
            await self._open(one)
        while True:
            await self._read_all(wanted, max_bytes)
            if self._satisfied(wanted, min_bytes) or not await self._wait(wanted, deadline):
                return answer(wanted)

    # --- finding ---------------------------------------------------------------------------------------

    def _find(self, one: Wanted) -> None:
        if one.error is not None:
            return
        try:
            one.slot = self._tablets.slot(one.bucket)
            tablet = one.slot.opened()
            if isinstance(tablet, LogTablet):
                self._take(one, tablet)
        except StromError as error:
            one.error = error

    async def _open(self, one: Wanted) -> None:
        if one.tablet is not None or one.error is not None:
            return
        assert one.slot is not None
        try:
            self._take(one, await wait_for(one.slot.opened()))
        except StromError as error:
            one.error = error

    def _take(self, one: Wanted, tablet: LogTablet) -> None:
        tablet.check_online()
        one.tablet = tablet
        if one.offset == EARLIEST:
            one.offset = tablet.start_offset
        if not tablet.start_offset <= one.offset <= tablet.end_offset:
            raise OffsetOutOfRange(
                f"bucket {one.bucket} holds offsets {tablet.start_offset} to {tablet.end_offset}, not {one.offset}",
                offset=one.offset,
                start_offset=tablet.start_offset,
                end_offset=tablet.end_offset,
            )
        one.found.next_offset = one.offset

    # --- reading ---------------------------------------------------------------------------------------

    def _readable(self, one: Wanted) -> bool:
        if one.error is not None or one.ended:
            return False
        assert one.tablet is not None
        return one.tablet.high_watermark > one.found.next_offset

    def _leaves_loop(self, one: Wanted, max_bytes: int) -> bool:
        if one.costly:
            return self._readable(one)
        if min(one.max_bytes, max_bytes) <= INLINE_BYTES_MAX or not self._readable(one):
            return False
        assert one.tablet is not None
        return one.tablet.bytes_from(one.found.next_offset) > INLINE_BYTES_MAX

    def _read_all_inline(self, wanted: Sequence[Wanted], max_bytes: int) -> None:
        max_bytes = self._room(max_bytes)
        for one in self._in_turn(wanted):
            room = min(max_bytes - sum(other.found.size for other in wanted), one.max_bytes - one.found.size)
            if room > 0 and self._readable(one):
                assert one.tablet is not None
                try:
                    _add(one, one.read(one.tablet, one.found.next_offset, room))
                except (StromError, OSError) as error:
                    one.error = error

    async def _read_all(self, wanted: Sequence[Wanted], max_bytes: int) -> None:
        max_bytes = self._room(max_bytes)
        for one in self._in_turn(wanted):
            while True:
                left = max_bytes - sum(other.found.size for other in wanted)
                room = min(left, one.max_bytes - one.found.size, SLICE_BYTES)
                if room <= 0 or not self._readable(one):
                    break
                before = one.found.next_offset
                await self._read_slice(one, room)
                if one.found.next_offset == before:
                    break

    def _room(self, max_bytes: int) -> int:
        """Little when the answers that are under way already fill the memory they may have."""
        return min(max_bytes, CROWDED_BYTES) if self._crowded() else max_bytes

    async def _read_slice(self, one: Wanted, room: int) -> None:
        tablet, slot = one.tablet, one.slot
        assert tablet is not None
        assert slot is not None
        slot.readers += 1
        try:
            if self._leaves_loop(one, room):
                _add(one, await self._readers.run(one.read, tablet, one.found.next_offset, room))
            else:
                _add(one, one.read(tablet, one.found.next_offset, room))
        except (StromError, OSError) as error:
            one.error = error
        finally:
            slot.readers -= 1

    def _in_turn(self, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Begin with another bucket each time, so that none is always last when the answer is full."""
        if len(wanted) == 1:
            return list(wanted)
        self._turn += 1
        start = self._turn % len(wanted) if wanted else 0
        return [*wanted[start:], *wanted[:start]]

    # --- waiting ---------------------------------------------------------------------------------------

    def _satisfied(self, wanted: Sequence[Wanted], min_bytes: int) -> bool:
        if self._stopping or any(one.error is not None for one in wanted) or not wanted:
            return True
        size = sum(one.found.size for one in wanted)
        if size >= min_bytes or all(one.ended for one in wanted):
            return True
        return any(one.found.bytes_skipped and one.moved for one in wanted)

    async def _wait(self, wanted: Sequence[Wanted], deadline: float) -> bool:
        """Wait until one of the buckets has more; False when the time is over."""
        loop = asyncio.get_running_loop()
        if loop.time() >= deadline:
            return False
        woken: asyncio.Future[None] = loop.create_future()
        tickets = [
            (one.tablet, one.tablet.pending.add(one.found.next_offset + 1, lambda _error: _wake(woken)))
            for one in wanted
            if one.tablet is not None and not one.ended
        ]
        timer = loop.call_at(deadline, _wake, woken)
        self._waiting.add(woken)
        try:
            await woken
        finally:
            self._waiting.discard(woken)
            timer.cancel()
            for tablet, ticket in tickets:
                tablet.pending.cancel(ticket)
        for one in wanted:
            if one.tablet is not None and one.tablet.error is not None:
                one.error = one.tablet.error
        return loop.time() < deadline


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


def _add(one: Wanted, more: Found) -> None:
    found = one.found
    found.buffers += more.buffers
    found.size += more.size
    found.rows += more.rows
    found.next_offset = more.next_offset
    found.bytes_skipped += more.bytes_skipped
    found.rows_skipped += more.rows_skipped
