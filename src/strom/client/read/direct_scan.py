"""Reads the buckets of a scan in the caller's own thread, on sockets of its own.

Neither the loop nor another thread takes part, so no byte waits for one. The next request leaves on another connection
as soon as the beginning of an answer says where that answer will end: the server reads while this thread receives and
decodes. So at most three answers exist: one being decoded, one arriving, one at the server.

Only the smooth course is handled here. An error that may pass on another try (a broken connection, another leader) ends
it, and the loop, which knows how to retry, reads what is ``left``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from strom.client.cluster.address import Address
from strom.client.cluster.direct_caller import DirectCaller
from strom.client.cluster.direct_calls import DirectCalls
from strom.client.cluster.retry import PASSING
from strom.client.read.bucket_read import Chunks, Unread
from strom.client.read.fetching import ChunkStream
from strom.client.read.row_scan import RowScan
from strom.client.read.scan_chunk import AnyChunk
from strom.errors import Disconnected, StromError
from strom.runtime.files import Bytes

FIRST_BYTES = 1024 * 1024
"""The size of the first answer; each following one may be twice as large. So the first rows come soon, and both sides
are soon at work."""

Result = TypeVar("Result")


class Loop(Protocol):
    """Runs a coroutine on the loop and waits for its result."""

    def __call__(self, work: Coroutine[Any, Any, Result]) -> Result: ...


class _Asked(NamedTuple):
    """A request whose answer has not been taken."""

    unread: Unread
    caller: DirectCaller
    request_id: int


class DirectAnswer(NamedTuple):
    """One answer, and what it is the beginning of."""

    unread: Unread
    message: Any


class DirectScan:
    """Reads buckets in order, for one thread at a time."""

    def __init__(self, unread: Sequence[Unread], calls: DirectCalls) -> None:
        self._calls = calls
        self._todo = deque(unread)
        self._asked: deque[_Asked] = deque()
        self._idle: dict[Address, list[DirectCaller]] = {}
        self._bytes_next = FIRST_BYTES

    @property
    def left(self) -> list[Unread]:
        """What was not handed out yet."""
        left: dict[int, Unread] = {}
        for one in [*(asked.unread for asked in self._asked), *self._todo]:
            left.setdefault(one.read.number, one)  # the first one of a bucket extends to the bucket's end
        return list(left.values())

    def next(self) -> DirectAnswer | None:
        """The next answer; None when all is read. After an error only ``left`` and ``close`` make sense."""
        if not self._asked:
            self._ask()
        if not self._asked:
            return None
        now = self._asked[0]
        answer = self._answer(now)
        reached = now.unread.read.reached(now.unread.offset, answer)
        if len(self._asked) > 1:
            _check_follows(now.unread, reached, self._asked[1].unread)
        self._asked.popleft()
        self._idle.setdefault(now.caller.address, []).append(now.caller)
        if not self._asked:
            try:
                self._go_on(now.unread, reached)
            except StromError:
                pass  # this answer is whole and counts; the rest is in ``left`` and is requested again next time
        return DirectAnswer(now.unread, answer)

    def close(self) -> None:
        """Give the connections back."""
        for asked in self._asked:
            self._calls.give_back(asked.caller)
        for callers in self._idle.values():
            for caller in callers:
                self._calls.give_back(caller)
        self._asked.clear()
        self._idle.clear()
        self._todo.clear()

    # --- asking --------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Ask for the next part, if there is one. After an error it is still the next one."""
        if not self._todo:
            return
        unread = self._todo[0]
        read = unread.read
        address = read.address()
        idle = self._idle.get(address)
        caller = idle.pop() if idle else self._calls.borrow(address)
        most = read.thread_bytes_max
        try:
            request_id = caller.start(read.api, read.request(unread.offset, min(self._bytes_next, most)))
        except BaseException:
            self._calls.give_back(caller)
            raise
        self._bytes_next = min(2 * self._bytes_next, most)
        self._asked.append(_Asked(unread, caller, request_id))
        self._todo.popleft()

    def _go_on(self, unread: Unread, reached: int) -> None:
        """Ask for what follows the answer that reached this offset."""
        if reached < unread.read.end:
            self._todo.appendleft(Unread(unread.read, reached))
        self._ask()

    # --- answers -------------------------------------------------------------------------------------------------

    def _answer(self, asked: _Asked) -> Any:
        unread, read = asked.unread, asked.unread.read

        def begun(frame: Bytes) -> None:
            reached = read.ahead(frame)
            if reached is not None and reached > unread.offset and len(self._asked) == 1:
                self._go_on(unread, reached)

        return asked.caller.finish(
            read.api, asked.request_id, timeout_s=read.timeout_ms / 1000, on_begun=begun
        )


def _check_follows(unread: Unread, reached: int, following: Unread) -> None:
    """The request sent while an answer arrived must begin where that answer, now complete, ends."""
    same = following.read is unread.read
    if reached != following.offset if same else reached < unread.read.end:
        raise Disconnected(f"an answer of {unread.read.bucket} ends elsewhere than it said")


class BlockingChunks:
    """The chunks of a scan for a blocking thread: read by itself while all goes well, else by the loop."""

    def __init__(self, stream: Chunks, run: Loop) -> None:
        self._stream = stream
        self._run = run
        self._direct: DirectScan | None = None
        self._begun = False
        unread = stream.direct
        if unread and (calls := unread[0].read.source.cluster.direct) is not None:
            self._direct = DirectScan(unread, calls)
            self._replanned = unread[0].read.replanned

    @classmethod
    def of(cls, scan: RowScan, run: Loop, *, ordered: bool) -> BlockingChunks:
        """The chunks of a scan, which this thread plans too where it can."""
        return cls(scan.stream_now(ordered=ordered) or run(scan.stream(ordered=ordered)), run)

    def next(self) -> AnyChunk | None:
        """The next chunk; None at the end."""
        if self._direct is not None:
            try:
                answer = self._direct.next()
            except StromError as error:
                if not self._may_pass(error):
                    raise
                self._hand_over(self._direct)
            else:
                self._begun = True
                return None if answer is None else self._chunk_of(answer)
        return self._run(self._stream.next())

    def _may_pass(self, error: StromError) -> bool:
        """Whether the loop may get further: by retrying, by asking the leader, or by planning again while no row was
        handed out."""
        assert self._direct is not None
        if any(one.read.followers for one in self._direct.left):
            return True
        return isinstance(error, PASSING) or (not self._begun and isinstance(error, self._replanned))

    def _hand_over(self, direct: DirectScan) -> None:
        if self._begun:  # else the stream is still untouched, and may plan again
            left = direct.left
            parallel = left[0].read.source.options.parallel_buckets
            self._stream = ChunkStream(left, parallel=parallel, ordered=True)
        self._direct = None
        direct.close()

    def _chunk_of(self, answer: DirectAnswer) -> AnyChunk:
        unread, message = answer
        chunk = unread.read.chunk(unread.offset, message)
        return self._run(unread.read.learned_chunk(unread.offset, message)) if chunk is None else chunk

    def close(self) -> None:
        """Give the connections back; the loop's requests end with ``stream.close``."""
        if self._direct is not None:
            self._direct.close()

    @property
    def stream(self) -> Chunks | None:
        """What the loop reads and has to close; None while this thread reads by itself: then it never began."""
        return self._stream if self._direct is None else None
