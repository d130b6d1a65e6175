"""Reads that may wait: what FetchLog and FetchRows share.

A fetch names buckets and offsets. If there are rows, it is answered at once; otherwise it waits until the high
watermark of one of its buckets moves or its time is over, and never holds up its connection meanwhile.

Small reads are done on the loop, because a thread would cost more than they do. Larger ones go to the reader threads in
slices, so that a full scan takes turns with all other reads instead of going first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from itertools import islice
from typing import Any, NamedTuple

from strom.errors import Corrupt, OffsetOutOfRange, StromError
from strom.log.chain import expired
from strom.protocol.message import Message
from strom.rpc.call import Answer
from strom.rpc.call_memory import BudgetShare
from strom.rpc.promise import Promise
from strom.runtime.tasks import Offload
from strom.server.calls.log.fetched_bucket import FetchedBucket
from strom.server.calls.log.heavy_reads import HEAVY_BYTES, HeavyReads
from strom.server.calls.log.log_read import ReadResult, plainly, released_after
from strom.server.remote.remote_logs import RemoteLogs
from strom.server.tablets.refusals import Refusals
from strom.server.tablets.tablets import Tablets, wait_for
from strom.tablet.tablet import Tablet

EARLIEST = -2
INLINE_BYTES_MAX = 256 * 1024
SLICE_BYTES = 16 * 1024 * 1024
"""Read at once by a reader thread. Reading and checking let other threads run, so this is not a long turn."""
COSTLY_BYTES = 16 * 1024 * 1024
"""Memory taken for a slice before it is known what its batches declare."""
COSTLY_SLICES_MAX = 64
"""After this many slices an answer leaves with what was found: a filter that matches rarely reads on in the next call.
"""
LOOKS_MAX = 3
"""What a slice needs may show step by step: how large its batch is, then what that decompresses to."""
CROWDED_BYTES = 64 * 1024
WAIT_S_MAX = 600.0
GIVEN_UP_PER_WAIT = 2
"""This many waiting fetches make room for one more."""
RELIEF_S = 0.001
"""How long waiting fetches are answered at once, when all of them are; then others have the loop."""


class Terms(NamedTuple):
    """What a fetch may take, the least worth an answer, and until when it waits (the loop's time)."""

    max_bytes: int
    min_bytes: int
    deadline: float
    answer: Callable[[Sequence[FetchedBucket]], Message]
    share: BudgetShare


class Fetches:
    """Performs fetches."""

    def __init__(
        self,
        tablets: Tablets,
        readers: Offload,
        *,
        max_bytes: int,
        refusals: Refusals | None = None,
        crowded: Callable[[], bool] = lambda: False,
        piece: Callable[[int], int] = lambda size: size,
        remote: RemoteLogs | None = None,
    ) -> None:
        """``remote``: what is not here any more."""
        self._tablets = tablets
        self._remote = remote
        self._readers = readers
        self._max_bytes = max_bytes
        self._crowded = crowded
        self._piece = piece
        self._turn = 0
        self._heavy = HeavyReads(lambda: piece(SLICE_BYTES) < SLICE_BYTES)
        self._waiting: dict[_Waiting, None] = {}
        self._relieved: deque[_Waiting] = deque()
        """Fetches still to be answered because memory got short."""
        self._refusals = refusals
        self._stopping = False

    def stop(self) -> None:
        """Answer every waiting fetch with what there is."""
        self._stopping = True
        for waiting in list(self._waiting):
            waiting.give_up()

    def _make_room(self, share: BudgetShare) -> None:
        """One more waits. When memory gets short, the fetches that waited longest are answered."""
        for oldest in list(islice(self._waiting, GIVEN_UP_PER_WAIT)) if share.crowded else ():
            oldest.give_up()

    def relieve(self) -> None:
        """Memory is short: answer every waiting fetch with what there is, a few at a time. Their clients will ask
        again."""
        goes_on = bool(self._relieved)
        self._relieved = deque(self._waiting)
        if not goes_on:
            self._relieve_some()

    def _relieve_some(self) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + RELIEF_S
        while self._relieved:
            self._relieved.popleft().give_up()
            if loop.time() >= ends:
                break
        if self._relieved:
            loop.call_soon(self._relieve_some)

    def fetch(
        self,
        wanted: list[FetchedBucket],
        *,
        max_bytes: int,
        min_bytes: int,
        max_wait_ms: int,
        answer: Callable[[Sequence[FetchedBucket]], Message],
        share: BudgetShare,
    ) -> Answer:
        """The answer: at once if there is something, or if the fetch must not wait."""
        max_bytes = min(max(max_bytes, 1), self._max_bytes)
        min_bytes = max(1, min(min_bytes, max_bytes))
        deadline = asyncio.get_running_loop().time() + min(max_wait_ms / 1000, WAIT_S_MAX)
        terms = Terms(max_bytes, min_bytes, deadline, answer, share)
        for one in wanted:
            self._find(one)
        pause_s = self._pause_s(wanted)
        if pause_s:
            return _after(pause_s, wanted, terms)
        if any(one.tablet is None and one.error is None for one in wanted):
            return self._fetch_later(wanted, terms)
        if self._leaves_loop(wanted, max_bytes):
            return self._fetch_later(wanted, terms)
        self._read_all_inline(wanted, max_bytes)
        if self._satisfied(wanted, terms):
            return answer(wanted)
        if self._leaves_loop(wanted, max_bytes):
            return self._fetch_later(wanted, terms)
        if max_wait_ms <= 0 or not _may_wait(wanted, terms):
            return answer(wanted)
        return _Waiting(self, wanted, terms).promise

    def _pause_s(self, wanted: Sequence[FetchedBucket]) -> float:
        """How long to wait before the client is told of an error."""
        refusals = self._refusals
        refused = [one for one in wanted if one.error is not None]
        if not refused or refusals is None:
            return 0.0
        return max(refusals.pause_s(one.error) for one in refused if one.error is not None)

    async def _fetch_later(self, wanted: list[FetchedBucket], terms: Terms) -> Message:
        """A fetch that has to open logs or to read much: it leaves the loop, so it takes a task."""
        for one in wanted:
            await self._open(one)
        await self._read_all(wanted, terms)
        over = asyncio.get_running_loop().time() >= terms.deadline
        if over or self._satisfied(wanted, terms) or not _may_wait(wanted, terms):
            return terms.answer(wanted)
        promise = _Waiting(self, wanted, terms).promise
        try:
            return await promise
        finally:
            promise.cancel()

    def _moved(self, waiting: _Waiting) -> None:
        """A bucket of a waiting fetch has more, or is gone: answer, or keep waiting."""
        wanted, terms = waiting.wanted, waiting.terms
        for one in wanted:
            one.look()
        if not self._satisfied(wanted, terms):  # after a read aside it may be: what is left stays there
            if not self._leaves_loop(wanted, terms.max_bytes):
                self._read_all_inline(wanted, terms.max_bytes)
            if not self._satisfied(wanted, terms) and self._leaves_loop(wanted, terms.max_bytes):
                waiting.read_aside(self._read_all(wanted, terms))
                return
        if self._satisfied(wanted, terms) or not _may_wait(wanted, terms):
            waiting.promise.set_result(terms.answer(wanted))
        else:
            waiting.wait()

    # --- finding ---------------------------------------------------------------------------------------

    def _find(self, one: FetchedBucket) -> None:
        if one.error is not None:
            return
        try:
            one.slot = self._tablets.copy(one.bucket) if one.cut else self._tablets.slot(one.bucket)
            tablet = one.place()
            if isinstance(tablet, Tablet) and not self._must_look(one, tablet):
                self._take(one, tablet)
        except StromError as error:
            one.error = error

    def _must_look(self, one: FetchedBucket, tablet: Tablet) -> bool:
        """Whether the object store has to be asked first where the bucket begins."""
        if self._remote is None:
            return False
        return self._remote.must_look(tablet, None if one.offset == EARLIEST else one.offset)

    async def _open(self, one: FetchedBucket) -> None:
        if one.tablet is not None or one.error is not None:
            return
        assert one.slot is not None
        try:
            tablet = await wait_for(one.place())
            if self._remote is not None and self._must_look(one, tablet):
                await self._remote.known(tablet)
            self._take(one, tablet)
        except StromError as error:
            one.error = error

    def _take(self, one: FetchedBucket, tablet: Tablet) -> None:
        tablet.check_online()
        one.tablet = tablet
        if one.offset == EARLIEST:
            one.offset, one.earliest = tablet.readable_from, True
        for seen in (one.seen, one.cut):
            if seen is not None:
                seen.check(tablet)
        start = tablet.readable_from
        if not start <= one.offset <= tablet.end_offset:
            raise OffsetOutOfRange(
                f"bucket {one.bucket} holds offsets {start} to {tablet.end_offset}, not {one.offset}",
                offset=one.offset,
                start_offset=start,
                end_offset=tablet.end_offset,
            )
        one.found.next_offset = one.offset

    # --- reading ---------------------------------------------------------------------------------------

    def _readable(self, one: FetchedBucket) -> bool:
        if one.error is not None or one.ended:
            return False
        assert one.tablet is not None
        return one.tablet.high_watermark > one.found.next_offset

    def _leaves_loop(self, wanted: Sequence[FetchedBucket], max_bytes: int) -> bool:
        """Whether there is too much to read on the loop."""
        return any(self._is_long(one, max_bytes) for one in wanted)

    def _is_long(self, one: FetchedBucket, max_bytes: int) -> bool:
        if one.costly or one.large or one.is_past:
            return self._readable(one)
        if min(one.max_bytes, max_bytes) <= INLINE_BYTES_MAX or not self._readable(one):
            return False
        assert one.tablet is not None
        return one.tablet.bytes_from(one.found.next_offset) > INLINE_BYTES_MAX

    def _read_all_inline(self, wanted: Sequence[FetchedBucket], max_bytes: int) -> None:
        left = self._room(max_bytes) - sum([one.found.size for one in wanted])
        for one in self._in_turn(wanted):
            room = min(left, one.max_bytes - one.found.size)
            while room > 0 and self._readable(one):
                assert one.tablet is not None
                try:
                    found = one.read(one.tablet, one.found.next_offset, room, INLINE_BYTES_MAX)
                except (StromError, OSError) as error:
                    if self._remote is not None and isinstance(error, OffsetOutOfRange) and one.is_past:
                        break  # it left this disk just now: it is read aside
                    one.fail(error)
                    continue
                before = one.found.size
                _add(one, found)
                left -= one.found.size - before
                break

    async def _read_all(self, wanted: Sequence[FetchedBucket], terms: Terms) -> None:
        left = self._room(terms.max_bytes) - sum([one.found.size for one in wanted])
        slices = 0
        for one in self._in_turn(wanted):
            while slices < COSTLY_SLICES_MAX:
                room = min(left, one.max_bytes - one.found.size)
                if room <= 0 or not self._readable(one):
                    break
                before, size = one.found.next_offset, one.found.size
                await self._read_slice(one, min(room, SLICE_BYTES), terms.share)
                slices += one.costly
                gained = one.found.size - size
                left -= gained
                full = gained > 0 and room <= SLICE_BYTES and not one.costly
                if full or one.found.next_offset == before:
                    break  # the next slice would begin with the batch that did not fit, or there is no memory

    def _room(self, max_bytes: int) -> int:
        """Little when answers under way already fill their memory; less during small calls."""
        return min(max_bytes, CROWDED_BYTES) if self._crowded() else self._piece(max_bytes)

    async def _read_slice(self, one: FetchedBucket, room: int, share: BudgetShare) -> None:
        """Read once, with memory that is taken before it is used; nothing when there is none."""
        assert one.tablet is not None
        if one.costly:
            needs = COSTLY_BYTES
        elif one.is_past:
            needs = room
        else:
            needs = min(room, max(one.tablet.bytes_from(one.found.next_offset), 1))
        for _ in range(LOOKS_MAX):
            if needs <= HEAVY_BYTES or share.amount:
                needs = await self._read_with(one, room, needs, share)
            else:
                async with self._heavy.turn():
                    needs = await self._read_with(one, room, needs, share)
            if not needs:
                return

    async def _read_with(self, one: FetchedBucket, room: int, needs: int, share: BudgetShare) -> int:
        """Read with this much memory, if there is; returns how much more the next batch needs (0: done)."""
        held, size = share.amount, one.found.size
        if not (share.take(needs) or (not held and await share.wait(needs))):
            one.starved = True
            return 0
        try:
            return await self._read_once(one, room, needs)
        finally:
            share.keep(held + one.found.size - size)

    async def _read_once(self, one: FetchedBucket, room: int, allowed: int) -> int:
        """Read; returns how much more memory the next batch needs (0: something was read)."""
        tablet, slot = one.tablet, one.slot
        assert tablet is not None
        assert slot is not None
        slot.readers += 1
        try:
            if one.is_past:
                found = await self._read_past(one, room, allowed)
            else:
                found = await self._read_here(one, tablet, room, allowed)
        except (StromError, OSError) as error:
            one.fail(error)
            return 0
        finally:
            slot.readers -= 1
        _add(one, found)
        return found.needs

    async def _read_here(self, one: FetchedBucket, tablet: Tablet, room: int, allowed: int) -> ReadResult:
        offset = one.found.next_offset
        try:
            if not self._is_long(one, room):
                return one.read(tablet, offset, room, allowed)
            read = released_after if one.costly and allowed > COSTLY_BYTES else plainly
            return await self._readers.run(read, one.read, tablet, offset, room, allowed)
        except OffsetOutOfRange:
            if self._remote is None or not one.is_past:
                raise
            return ReadResult([], 0, 0, offset, needs=room)  # it left this disk just now: look again

    async def _read_past(self, one: FetchedBucket, room: int, allowed: int) -> ReadResult:
        """Read what is not on this disk any more."""
        tablet, offset = one.tablet, one.found.next_offset
        assert tablet is not None
        if self._remote is None:
            raise expired(offset, tablet.start_offset)
        try:
            found = await self._remote.read(tablet, offset, one.read.wish(room, allowed))
            return await self._readers.run(one.read.made, found, room, allowed)
        except Corrupt as error:
            raise one.read.unreadable(tablet, offset, error) from error

    def _in_turn(self, wanted: Sequence[FetchedBucket]) -> list[FetchedBucket]:
        """Begin with another bucket each time, so that none is always last when the answer is full."""
        if len(wanted) == 1:
            return list(wanted)
        self._turn += 1
        start = self._turn % len(wanted) if wanted else 0
        return [*wanted[start:], *wanted[:start]]

    # --- waiting ---------------------------------------------------------------------------------------

    def _satisfied(self, wanted: Sequence[FetchedBucket], terms: Terms) -> bool:
        if self._stopping or any(one.error is not None or one.starved for one in wanted) or not wanted:
            return True
        size = sum(one.found.size for one in wanted)
        if size >= terms.min_bytes or all(one.ended for one in wanted):
            return True
        return any(one.found.bytes_skipped and one.moved for one in wanted)


class _Waiting:
    """A fetch that found nothing: wakes up when a bucket moves, a bucket is gone, or its time is over.

    No task and no future: the answer leaves within the append that brought its rows.
    """

    def __init__(self, fetches: Fetches, wanted: list[FetchedBucket], terms: Terms) -> None:
        self.wanted = wanted
        self.terms = terms
        self.promise: Promise[Message] = Promise()
        self._fetches = fetches
        self._tickets: list[tuple[Tablet, int]] = []
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_at(terms.deadline, self.give_up)
        fetches._waiting[self] = None
        self.promise.add_done_callback(self._ended)
        self.wait()
        fetches._make_room(terms.share)

    def wait(self) -> None:
        """Wait for the next row of any bucket that is not finished."""
        for one in self.wanted:
            if one.tablet is not None and not one.ended:
                self._tickets.append(
                    (one.tablet, one.tablet.pending.add(one.found.next_offset + 1, self._moved))
                )

    def give_up(self) -> None:
        """Answer with what there is."""
        if self._task is None:
            self._settle(lambda: self.promise.set_result(self.terms.answer(self.wanted)))

    def read_aside(self, reading: Coroutine[Any, Any, None]) -> None:
        """There is too much to read right here: a task does it."""
        before = self._reached()
        self._task = asyncio.get_running_loop().create_task(reading)
        self._task.add_done_callback(lambda task: self._has_read(task, before))

    def _reached(self) -> int:
        return sum([one.found.next_offset for one in self.wanted])

    def _has_read(self, task: asyncio.Task[None], before: int) -> None:
        self._task = None
        if task.cancelled():
            self.promise.cancel()
        elif (error := task.exception()) is not None:
            self.promise.set_exception(error)
        elif asyncio.get_running_loop().time() >= self.terms.deadline:
            self.give_up()
        elif not self.promise.done():
            # Where nothing could be read (no room for it), another look right now would find the same.
            self._settle(lambda: self._fetches._moved(self) if self._reached() > before else self.wait())

    def _moved(self, _error: StromError | None) -> None:
        if self._task is None and not self.promise.done():
            self._forget_tickets()
            self._settle(lambda: self._fetches._moved(self))

    def _settle(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # an append called us: the failure is not its fault
            self.promise.set_exception(error)

    def _forget_tickets(self) -> None:
        tickets, self._tickets = self._tickets, []
        for tablet, ticket in tickets:
            tablet.pending.cancel(ticket)

    def _ended(self, _promise: Promise[Message]) -> None:
        del self._fetches._waiting[self]
        self._timer.cancel()
        self._forget_tickets()
        if self._task is not None:
            self._task.cancel()


async def _after(pause_s: float, wanted: Sequence[FetchedBucket], terms: Terms) -> Message:
    """An answer with errors, after a pause: the peer's clients have none."""
    await asyncio.sleep(pause_s)
    return terms.answer(wanted)


def _may_wait(wanted: Sequence[FetchedBucket], terms: Terms) -> bool:
    """Whether a fetch may wait for more while it holds what it found: not with memory that others need."""
    size = sum([one.found.size for one in wanted])
    if not size:
        return True
    share = terms.share
    return (
        not share.crowded and not share.scarce and (size <= share.amount or share.take(size - share.amount))
    )


def _add(one: FetchedBucket, more: ReadResult) -> None:
    found = one.found
    found.buffers += more.buffers
    found.size += more.size
    found.rows += more.rows
    found.next_offset = more.next_offset
    found.bytes_skipped += more.bytes_skipped
    found.rows_skipped += more.rows_skipped
    one.large = more.needs > 0
