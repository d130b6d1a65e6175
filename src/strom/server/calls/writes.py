"""Writes to buckets: what ProduceLog, PutKv and UpsertRows share.

Each bucket of a request is begun in the order of arrival, before anything is waited for, so pipelined requests on one
bucket are applied in the order they were sent. Only the disk, and other copies, are waited for: an acknowledgement of
``acks`` -1 follows the high watermark, one of ``acks`` 1 what this copy promises by itself.

Errors are answered per bucket: the peer's client takes an error of the whole request for a broken connection and
retries forever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from traceback import clear_frames
from typing import Any, Generic, TypeAlias, TypeVar

from strom.errors import (
    InvalidAcks,
    RequestTimeout,
    StorageOffline,
    StromError,
    TooFewInSync,
)
from strom.model.bucket import BucketId
from strom.protocol.message import Message
from strom.rpc.budget import Budget
from strom.rpc.call_memory import BudgetShare
from strom.runtime.clock import Clock
from strom.runtime.memory import release_arrow
from strom.server.background.checkpoints import Checkpoints
from strom.server.background.disk_space import DiskSpace
from strom.server.background.group_commit import GroupCommit
from strom.server.tablets.copy_role import CopyRole
from strom.server.tablets.refusals import Refusals
from strom.server.tablets.table_facts import TableFacts
from strom.server.tablets.tablet_slot import TabletSlot
from strom.tablet.pending import Pending
from strom.tablet.tablet import Accepted, Tablet

INLINE_BYTES_MAX = 512 * 1024
"""A larger append (checksums and a copy into the page cache: about a millisecond) leaves the loop, so that small calls
wait less beside a bulk load."""
INLINE_BYTES_MAX_WHEN_SLOW = 64 * 1024
ALONE_BYTES_MAX = 2 * 1024 * 1024
"""An append up to this size stays on the loop while nobody else calls: handing it to a thread and back costs half as
much as the append itself."""
ALONE_AFTER_S = 0.05
"""This long after another bucket's bulk write, a bulk load has the server to itself again."""
BULK_BYTES_MIN = 256 * 1024
"""A write of this size gives way to small calls (``bulk_turns.py``)."""
SLOW_S = 0.01
SLOW_ALONE_S = 0.05
SLOW_FOR_S = 10.0
"""A system that has too much to write makes writers wait, hundreds of milliseconds each. Once an append took ``SLOW_S``
on the loop (``SLOW_ALONE_S`` while nobody else called), all but small ones leave it for ``SLOW_FOR_S``."""
ALL = -1
ACKS = (ALL, 0, 1)
REFUSAL_S = 0.3
"""How long a write that could not be acknowledged is held before it is refused."""
TIMEOUT_S_MAX = 600.0

MEMORY_FREE = 16 * 1024 * 1024
"""Rows that take no more than this, decompressed, are not counted: only a few threads have some at a time."""

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Message)
B = TypeVar("B")
Begun: TypeAlias = R | asyncio.Future[R]
"""The answer of one bucket, now or once it is durable."""


@dataclass(slots=True, eq=False)
class Write(Generic[R]):
    """What to do to one bucket, and how to answer that it is done, or why not."""

    slot: TabletSlot
    facts: TableFacts
    _: KW_ONLY
    size: int
    acks: int
    job: Callable[[Tablet], Accepted]
    written: Callable[[Tablet, Accepted], R]
    refused: Callable[[BaseException], R]
    inline_bytes_max: int = INLINE_BYTES_MAX
    alone_bytes_max: int = 0
    """The same while nobody else calls."""
    memory: int = 0
    """What the rows take decompressed, in addition to the request."""
    turn: int = field(init=False)
    """Of the leader that it was given to."""

    def __post_init__(self) -> None:
        self.turn = 0 if self.slot.role is None else self.slot.role.turn


class Writes:
    """Begins writes, and acknowledges each when it is as durable as promised."""

    def __init__(
        self,
        commit: GroupCommit,
        checkpoints: Checkpoints,
        space: DiskSpace,
        clock: Clock,
        *,
        budget: Budget,
        small_calls_about: Callable[[], bool] = lambda: True,
    ) -> None:
        self._commit = commit
        self._budget = budget
        self._checkpoints = checkpoints
        self._space = space
        self._clock = clock
        self._refusals = Refusals(clock)
        self._small_calls_about = small_calls_about
        self._slow_until = 0.0
        self._bulk_bucket: BucketId | None = None
        self._bulk_at = float("-inf")
        self._others_until = 0.0

    def now_ms(self) -> int:
        """The time to stamp a write with."""
        return self._clock.now_ms()

    def check(self, acks: int) -> None:
        """Refuse invalid acks, and every write while the disk is full."""
        if acks not in ACKS:
            raise InvalidAcks(f"acks is -1, 0 or 1, not {acks}", acks=acks)
        self._space.refuse_when_full()

    def pause_s(self, error: BaseException) -> float:
        """How long to wait before a client is told that its write was not begun."""
        return self._refusals.pause_s(error)

    def begin(self, write: Write[R]) -> Begun[R]:
        """Do it: at once when it is small, else in the bucket's turn."""
        slot, job, clock = write.slot, write.job, self._clock

        def do(tablet: Tablet) -> tuple[Tablet, Accepted]:
            began = clock.monotonic()
            accepted = job(tablet) if write.memory <= MEMORY_FREE else _released_after(job, tablet)
            took = clock.monotonic() - began
            if took > SLOW_S and _on_loop():
                self._was_slow(write, took)
            return tablet, accepted

        def stays() -> bool:
            return self._stays(write)

        if slot.role is not None and write.acks == ALL:
            try:
                slot.role.check_enough()
            except TooFewInSync as error:
                return _after(REFUSAL_S, write.refused(error))
        try:
            share = BudgetShare(self._budget) if write.memory > MEMORY_FREE else None
            memory = None if share is None else partial(share.need, write.memory)
            result = slot.do(do, small=stays(), bulk=write.size >= BULK_BYTES_MIN, stays=stays, memory=memory)
        except OSError as error:
            return _failed(write, error)
        if share is not None and isinstance(result, asyncio.Future):
            result.add_done_callback(lambda _: share.close())
        if isinstance(result, asyncio.Future):
            return self._answered_later(write, result)
        return self._appended(write, *result)

    def _stays(self, write: Write[Any]) -> bool:
        """Whether it may be done on the loop now."""
        now = self._clock.monotonic()
        limit = write.inline_bytes_max
        if write.size > limit and self._is_alone(write.slot.bucket, now):
            limit = write.alone_bytes_max
        if now < self._slow_until:
            limit = min(limit, INLINE_BYTES_MAX_WHEN_SLOW)
        return write.size <= limit and _is_quick(write.slot, write.size, self._clock.now_ms())

    def _was_slow(self, write: Write[Any], took: float) -> None:
        if took > (SLOW_ALONE_S if write.size > write.inline_bytes_max else SLOW_S):
            self._slow_until = self._clock.monotonic() + SLOW_FOR_S

    def _is_alone(self, bucket: BucketId, now: float) -> bool:
        """Whether this is the only bulk load, and there are no small calls."""
        if bucket != self._bulk_bucket and now - self._bulk_at < ALONE_AFTER_S:
            self._others_until = now + ALONE_AFTER_S
        self._bulk_bucket, self._bulk_at = bucket, now
        return now >= self._others_until and not self._small_calls_about()

    def _answered_later(
        self, write: Write[R], appending: asyncio.Future[tuple[Tablet, Accepted]]
    ) -> asyncio.Future[R]:
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def done(appending: asyncio.Future[tuple[Tablet, Accepted]]) -> None:
            try:
                begun = self._appended(write, *appending.result())
            except (Exception, asyncio.CancelledError) as error:
                failed, pause = _failed(write, error), self.pause_s(error)
                begun = _after(pause, failed) if pause else failed
            if isinstance(begun, asyncio.Future):
                begun.add_done_callback(lambda acknowledged: _pass_on(acknowledged, answer))
            elif not answer.done():
                answer.set_result(begun)

        appending.add_done_callback(done)
        return answer

    def _appended(self, write: Write[R], tablet: Tablet, accepted: Accepted) -> Begun[R]:
        tablet.check_online()  # dropped, or its disk failed, while the append was off the loop: nobody will sync it
        role = write.slot.role
        if role is not None:
            role.check_turn(
                write.turn
            )  # another leads by now: what it has at these offsets may be something else
        if not accepted.duplicate:
            traffic = write.facts.traffic
            traffic.rows_in.inc(accepted.rows)
            traffic.bytes_in.inc(accepted.size)
            self._checkpoints.appended(write.slot, tablet, accepted.size)
        followed = len(tablet.pending) > 0
        tablet.advance()
        response = write.written(tablet, accepted)
        if tablet.durability == "group":
            self._commit.request(tablet)
        if write.acks == 0 or tablet.high_watermark >= accepted.next_offset:
            return _after_readers(response) if followed else response
        if role is not None and write.acks == 1:
            return _promised(role, tablet, accepted.next_offset, write, response)
        return _acknowledged(tablet.pending, accepted.next_offset, write, response)


def _released_after(job: Callable[[Tablet], Accepted], tablet: Tablet) -> Accepted:
    """Work that takes much memory, which is freed at once: every thread has a heap, and each would keep as much."""
    try:
        return job(tablet)
    except BaseException as error:
        clear_frames(error.__traceback__)  # they hold the rows
        raise
    finally:
        release_arrow()


def answer_all(
    buckets: Sequence[B],
    begin: Callable[[B], Begun[R]],
    *,
    whole: Callable[[Sequence[R]], Message],
    refused: Callable[[B, BaseException], R],
    timeout_ms: int,
    pause_s: Callable[[BaseException], float],
) -> Message | Awaitable[Message]:
    """Begin all buckets, and answer them as one; after the timeout, the missing ones have timed out.

    ``pause_s``: how long to wait before a client is told of an error.
    """
    begun: list[Begun[R]] = []
    for bucket in buckets:
        try:
            begun.append(begin(bucket))
        except Exception as error:
            response, pause = refused(bucket, error), pause_s(error)
            begun.append(_after(pause, response) if pause else response)
    waiting = [one for one in begun if isinstance(one, asyncio.Future)]
    if not waiting:
        return whole(begun)  # type: ignore[arg-type]
    return _Answer(
        begun, waiting, whole, lambda index, error: refused(buckets[index], error), timeout_ms
    ).future


class _Answer(Generic[R]):
    """Collects the answers of all buckets."""

    def __init__(
        self,
        begun: list[Begun[R]],
        waiting: list[asyncio.Future[R]],
        whole: Callable[[Sequence[R]], Message],
        refused: Callable[[int, BaseException], R],
        timeout_ms: int,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Message] = loop.create_future()
        self._begun = begun
        self._missing = len(waiting)
        self._whole = whole
        self._refused = refused
        self._timeout_ms = timeout_ms
        self._timer = loop.call_later(min(max(timeout_ms, 1) / 1000, TIMEOUT_S_MAX), self._send)
        for one in waiting:
            one.add_done_callback(self._arrived)

    def _arrived(self, _future: asyncio.Future[R]) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._send()

    def _send(self) -> None:
        self._timer.cancel()
        if not self.future.done():
            answers = [self._one(index, begun) for index, begun in enumerate(self._begun)]
            self.future.set_result(self._whole(answers))

    def _one(self, index: int, begun: Begun[R]) -> R:
        if not isinstance(begun, asyncio.Future):
            return begun
        if begun.done() and not begun.cancelled():
            return begun.result()
        error = RequestTimeout(f"not durable within {self._timeout_ms} ms; it may still become durable")
        return self._refused(index, error)


def _on_loop() -> bool:
    """Whether this is the loop's thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _is_quick(slot: TabletSlot, size: int, now_ms: int) -> bool:
    """Whether an append may be done on the loop: it is a copy without a sync, and nothing has to be read before."""
    tablet = slot.tablet
    return tablet is not None and not tablet.reads_disk and tablet.log.appends_quickly(size, now_ms)


def _failed(write: Write[R], error: BaseException) -> R:
    """An append failed. If it was the disk, the content of the log is unknown: the tablet goes offline."""
    if isinstance(error, OSError):
        error = StorageOffline(f"the disk failed to write bucket {write.slot.bucket}: {error}")
    if isinstance(error, StorageOffline) and write.slot.tablet is not None:
        write.slot.tablet.fail(error)
    return write.refused(error)


def _after_readers(response: R) -> asyncio.Future[R]:
    """``response`` one turn later: readers that were just woken wait for the row, the writer only for an
    acknowledgement."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[R] = loop.create_future()
    loop.call_soon(_resolve, answer, response)
    return answer


def _resolve(answer: asyncio.Future[Any], response: Message) -> None:
    if not answer.done():
        answer.set_result(response)


def _after(pause_s: float, response: R) -> asyncio.Future[R]:
    """``response`` after a pause: the peer's clients repeat a refused write at once, thousands of times a second."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[R] = loop.create_future()
    loop.call_later(pause_s, _resolve, answer, response)
    return answer


def _promised(role: CopyRole, tablet: Tablet, offset: int, write: Write[R], response: R) -> Begun[R]:
    """``response``, once this copy alone keeps the table's promise up to ``offset``."""
    have = tablet.log.synced_end if tablet.durability == "group" else tablet.end_offset
    return response if have >= offset else _acknowledged(role.promised, offset, write, response)


def _acknowledged(pending: Pending, offset: int, write: Write[R], response: R) -> asyncio.Future[R]:
    """``response``, once ``offset`` is reached."""
    answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()

    def reached(error: StromError | None) -> None:
        if not answer.done():
            answer.set_result(response if error is None else write.refused(error))

    pending.add(offset, reached)
    return answer


def _pass_on(source: asyncio.Future[R], target: asyncio.Future[R]) -> None:
    if not target.done():
        target.set_result(source.result())
