"""What lookups of all kinds share: finding the bucket, waiting for an offset, and where the work is done.

Keys are looked up on the loop, because a thread would cost more than they do; very many go to the reader threads in
slices, so that all other calls take turns with them. So does whatever may find many rows for one key: by prefix, by a
secondary index. Errors are answered bucket by bucket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from strom.errors import Busy, LimitExceeded, RequestTimeout, StromError
from strom.kv.gather.memory_needed import MemoryNeeded
from strom.model.bucket import BucketId
from strom.protocol.message import Message
from strom.rpc.call_memory import BudgetShare
from strom.runtime.clock import Clock
from strom.runtime.effort import Effort, effort_of_thread
from strom.runtime.memory import release_arrow
from strom.runtime.settings import Settings
from strom.runtime.tasks import Offload
from strom.server.tablets.key_forms import key_tablet
from strom.server.tablets.table_facts import TableFacts, Tables
from strom.server.tablets.tablet_slot import TabletSlot
from strom.server.tablets.tablets import Tablets, wait_for
from strom.server.tablets.waiting import settle
from strom.tablet.key_lookup import AtLeast
from strom.tablet.tablet import Tablet

INLINE_KEYS_MAX = 64
"""More keys than this are looked up off the loop after that has taken long (``Pace``)."""
INLINE_KEYS_MOST = 1024
"""More keys than this always are. A key takes less than half a microsecond, a thread and back hundreds."""
INLINE_S_MAX = 0.002
"""A longer lookup on the loop is examined: it may have worked or waited, or other processes had the processor."""
INLINE_CPU_S_MAX = 0.005
"""Work that is too long for the loop. 1,000 keys of text and ten columns take one to two milliseconds, three beside
processes that empty the caches; a column of a base file that is checked first, more than this. A thread and back takes
another one, and on a busy machine two waits for a processor."""
ASIDE_S = 1.0
SLICE_KEYS = 4096
QUICK_BYTES_MAX = 1024 * 1024
"""Rows of more bytes are not found on the loop."""
FIRST_BYTES = 128 * 1024
"""Off the loop, this much is allowed before it is known how much there is."""
COPIES = 2
"""How often an answer is in memory while it is built: as found, and as sent."""
LOOKS_MAX = 8
"""How often a lookup may turn out to need more than was allowed."""
RELEASED_BYTES = 16 * 1024 * 1024
"""Before taking this much, the thread frees what it had before."""
WAIT_MS_DEFAULT = 30_000
WAIT_MS_MAX = 600_000
CONFIRM_S_MAX = 1.0
"""How long a strong lookup waits for the other copies, and half of what its caller waits at most. Then the caller is
told why, and looks whether another server leads by now."""

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Message)
T = TypeVar("T")


@dataclass(frozen=True)
class LookupLimits:
    """How much one request may ask for, and get."""

    keys_max: int
    answer_bytes_max: int

    @classmethod
    def of(cls, settings: Settings) -> LookupLimits:
        """From the server's settings."""
        return cls(settings["kv.lookup.keys-max"], settings["server.request.max-bytes"])

    def check_keys(self, count: int) -> None:
        """Refuse a request for too many keys."""
        if count > self.keys_max:
            raise LimitExceeded(
                f"one lookup asks for at most {self.keys_max} keys, not {count} (kv.lookup.keys-max)",
                keys=count,
            )

    def check_bytes(self, size: int) -> None:
        """Refuse an answer that is too large for a frame."""
        if size > self.answer_bytes_max:
            raise LimitExceeded(
                f"the rows found take more than {self.answer_bytes_max} bytes: ask for fewer keys or columns",
                bytes=size,
            )


@dataclass(slots=True, eq=False)
class BucketLookup(Generic[R]):
    """One bucket of a request: ``find`` looks its keys up (in any thread), ``refused`` builds the answer to an error.

    ``find`` takes the number of bytes that its rows may have, and raises ``MemoryNeeded`` for more; ``size`` tells how
    many they are. ``single``: a key has at most one row. ``strong``: the leader first makes sure that it still is one.
    """

    bucket: BucketId
    keys: int
    find: Callable[[TableFacts, Tablet, int], R]
    refused: Callable[[BaseException], R]
    size: Callable[[R], int]
    at_least: AtLeast | None = None
    single: bool = True
    strong: bool = False


class Pace:
    """Whether many keys may be looked up on the loop: not for a while after a lookup that took long.

    Rows in memory are found in no time. Rows in files that the system has to read first are not, and that cannot be
    known beforehand: the loop waits for them at most once a second, threads for all others. A loop that merely had to
    give the processor to others is no reason: threads would have to as well.
    """

    def __init__(self, now: Callable[[], float], effort: Callable[[], Effort] = effort_of_thread) -> None:
        self._now = now
        self._effort = effort
        self._aside_until = now()

    def allows(self, keys: int) -> bool:
        """Whether to look up right here."""
        if keys <= INLINE_KEYS_MAX:
            return True
        return keys <= INLINE_KEYS_MOST and self._now() >= self._aside_until

    def begin(self) -> tuple[float, Effort]:
        """A lookup on the loop begins; pass the result to ``end``."""
        return self._now(), self._effort()

    def end(self, began: tuple[float, Effort]) -> None:
        """A lookup on the loop has ended."""
        at, before = began
        now = self._now()
        if now - at > INLINE_S_MAX:
            after = self._effort()
            if after.faults > before.faults or after.cpu_s - before.cpu_s > INLINE_CPU_S_MAX:
                self._aside_until = now + ASIDE_S


class KeyReads:
    """Performs lookups."""

    def __init__(
        self, tablets: Tablets, tables: Tables, readers: Offload, clock: Clock, *, answer_bytes_max: int
    ) -> None:
        self._tablets = tablets
        self._answer_bytes_max = answer_bytes_max
        self._waiting: dict[asyncio.Future[None], None] = {}  # the oldest first
        self.pace = Pace(clock.monotonic)
        self._tables = tables
        self._readers = readers

    def relieve(self) -> None:
        """Memory is short: end lookups that wait for rows to become visible, with their keys; clients retry."""
        for moved in list(self._waiting):
            _give_up(moved)

    def answer(
        self,
        lookups: Sequence[BucketLookup[R]],
        whole: Callable[[Sequence[R]], Message],
        share: BudgetShare,
        wait_ms: int | None = None,
    ) -> Message | Awaitable[Message]:
        """Every bucket's answer: at once when all of it is quick."""
        found: list[R] = []
        most = left = min(QUICK_BYTES_MAX, self._answer_bytes_max)
        for one in lookups:
            quick = self._quick(one, left)
            if quick is None:
                share.add(most - left)
                return self._answer_later(lookups, found, whole, share, bounded_wait(wait_ms))
            found.append(quick)
            if len(lookups) > 1:
                left = max(left - one.size(quick), 0)
        return whole(found)

    async def _answer_later(
        self,
        lookups: Sequence[BucketLookup[R]],
        found: list[R],
        whole: Callable[[Sequence[R]], Message],
        share: BudgetShare,
        wait_ms: int,
    ) -> Message:
        rest = lookups[len(found) :]
        parts = [share.part() for _ in rest]
        left = Left(self._answer_bytes_max - share.amount)
        try:
            slow = [self.slowly(one, wait_ms, part, left) for one, part in zip(rest, parts, strict=True)]
            found += await asyncio.gather(*slow)
        finally:
            for part in parts:
                share.join(part)
        return whole(found)

    def ready(self, bucket: BucketId, at_least: AtLeast | None = None) -> tuple[TableFacts, Tablet] | None:
        """A bucket that can be asked right now; None when it first has to be opened, updated or waited for."""
        slot = self._tablets.slot(bucket)
        tablet = slot.opened() if slot.tablet is not None else None
        if not isinstance(tablet, Tablet):
            return None
        facts = self._table(bucket, tablet)
        if key_tablet(tablet).definition is not facts.keys.definition:
            return None
        if at_least is not None and not key_tablet(tablet).visible(at_least):
            return None
        return facts, tablet

    def _quick(self, one: BucketLookup[R], bytes_max: int) -> R | None:
        """The answer, if it can be given on the loop."""
        try:
            ready = self.ready(one.bucket, one.at_least)
            if ready is None or not one.single or not self.pace.allows(one.keys):
                return None
            if one.strong and self._tablets.slot(one.bucket).role is not None:
                return None
            facts, tablet = ready
            if tablet.reads_disk:
                return None
            facts.traffic.keys_in.inc(one.keys)
            began = self.pace.begin()
            found = one.find(facts, tablet, bytes_max)
            self.pace.end(began)
            return found
        except MemoryNeeded:
            return None
        except Exception as error:
            return self._refused(one, error)

    async def slowly(
        self, one: BucketLookup[R], wait_ms: int, share: BudgetShare, left: Left | None = None
    ) -> R:
        """The answer after everything it has to wait for, found in a reader thread."""
        try:
            slot = self._tablets.slot(one.bucket)
            self._tables.of(one.bucket.table_id).keys  # noqa: B018  # refuses a log table before it is opened
            tablet = await self.opened(slot)
            if one.strong and slot.role is not None:
                await slot.role.confirmed(min(wait_ms / 2000, CONFIRM_S_MAX))
            facts = self._table(one.bucket, tablet)
            if one.at_least is not None:
                await self._visible(tablet, one.at_least, wait_ms, share)
            facts.traffic.keys_in.inc(one.keys)
            left = left or Left(self._answer_bytes_max)
            find = partial(one.find, facts, tablet)
            return await self.bounded(slot, find, share, left, one.size)
        except Exception as error:
            return self._refused(one, error)

    async def opened(self, slot: TabletSlot, cut: int | None = None) -> Tablet:
        """The tablet, opened if necessary, with the current version of its table.

        ``cut``: for a read at an instant that was planned before, which any copy that has reached it can answer.
        """
        tablet = await wait_for(slot.opened() if cut is None else slot.pinned(cut))
        tablet.check_online()
        definition = self._tables.of(slot.bucket.table_id).keys.definition
        if key_tablet(tablet).definition is not definition:
            # The table was altered, and the lane has not updated the bucket yet: after a turn it has.
            turn = slot.do(lambda tablet: None, small=False, any_role=True)
            if isinstance(turn, asyncio.Future):
                await turn
        return tablet

    async def bounded(
        self,
        slot: TabletSlot,
        find: Callable[[int], T],
        share: BudgetShare,
        left: Left,
        size: Callable[[T], int],
    ) -> T:
        """The result of ``find`` in a reader thread, with memory that is taken before it is used."""
        allowed = min(FIRST_BYTES, self._answer_bytes_max)
        for _ in range(LOOKS_MAX):
            await share.need(COPIES * allowed)
            try:
                found = await self.aside(slot, partial(_released, find, allowed))
            except MemoryNeeded as larger:
                share.close()
                allowed = left.allow(larger.size, allowed)
                continue
            except BaseException:
                share.close()
                raise
            taken = size(found)
            left.take(taken)
            share.keep(taken)
            return found
        raise _too_large(self._answer_bytes_max)

    async def aside(self, slot: TabletSlot, work: Callable[[], T]) -> T:
        """Work on a tablet in a reader thread; it stays open meanwhile."""
        slot.readers += 1
        try:
            return await self._readers.run(work)
        finally:
            slot.readers -= 1

    async def _visible(self, tablet: Tablet, at_least: AtLeast, wait_ms: int, share: BudgetShare) -> None:
        """Wait until everything before an offset is visible. Raises StaleEpoch when another record is in its place."""
        keys = key_tablet(tablet)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        while not keys.visible(at_least):
            moved: asyncio.Future[None] = loop.create_future()
            ticket = tablet.pending.add(at_least.offset, partial(settle, moved))
            self._waiting[moved] = None
            if share.crowded:
                _give_up(next(iter(self._waiting)))
            try:
                await asyncio.wait_for(moved, max(deadline - loop.time(), 0))
            except TimeoutError:
                raise RequestTimeout(
                    f"offset {at_least.offset} was not visible within {wait_ms} ms", offset=at_least.offset
                ) from None
            finally:
                tablet.pending.cancel(ticket)
                del self._waiting[moved]

    def _table(self, bucket: BucketId, tablet: Tablet) -> TableFacts:
        facts = self._tables.of(bucket.table_id)
        facts.keys  # noqa: B018  # refuses a log table
        tablet.check_online()
        return facts

    def _refused(self, one: BucketLookup[R], error: BaseException) -> R:
        if not isinstance(error, StromError):
            logger.error("a lookup in bucket %s failed", one.bucket, exc_info=error)
        return one.refused(error)


def bounded_wait(wait_ms: int | None) -> int:
    """How long a request waits at most, given its own limit or none."""
    return WAIT_MS_DEFAULT if wait_ms is None else min(max(wait_ms, 0), WAIT_MS_MAX)


def _released(find: Callable[[int], T], allowed: int) -> T:
    if allowed > RELEASED_BYTES:
        release_arrow()  # what this thread had for earlier answers
    return find(allowed)


def _give_up(moved: asyncio.Future[None]) -> None:
    if not moved.done():
        moved.set_exception(Busy("memory is short, and the rows are not visible yet: try again"))


class Left:
    """How many bytes the answer of a whole request may still get; its buckets share it."""

    def __init__(self, size: int) -> None:
        self._most = self._size = size

    def allow(self, size: int, before: int) -> int:
        """Allow this much, but no more than is left; refuse if as much was allowed before."""
        if before >= self._size:
            raise _too_large(self._most)
        return min(size, self._size)

    def take(self, size: int) -> None:
        """Count what was found."""
        if size > self._size:
            raise _too_large(self._most)
        self._size -= size


def _too_large(limit: int) -> LimitExceeded:
    return LimitExceeded(
        f"the rows found take more than {limit} bytes: ask for fewer keys or columns, or use scan(where=...)",
        limit=limit,
    )
