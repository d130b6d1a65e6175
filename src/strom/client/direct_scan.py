"""The chunks of a scan for a thread that blocks: it receives them itself, on sockets of its own.

No loop and no other thread has a part in it, so no byte waits for one. The next request leaves as soon as the
beginning of an answer says where that answer will end, on another connection: the server reads while this thread
receives and decodes. So three answers exist at most: one being decoded, one arriving, one at the server.

Only the smooth course is handled here. Whatever may pass when it is tried again (a broken connection, another leader)
ends it, and the loop, which knows how to try again, reads what is ``left``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

from strom.client.address import Address
from strom.client.direct import DirectCaller, DirectCalls
from strom.client.fetching import Chunk, ChunkStream, RangeFetch, Source
from strom.client.planning import BucketRange
from strom.client.retry import PASSING
from strom.client.rows import Encoded
from strom.client.scan import AnyChunk, Chunks
from strom.errors import Disconnected, InvalidRequest, LeaderNotAvailable
from strom.protocol.ahead import number_ahead
from strom.protocol.api_keys import FETCH_ROWS
from strom.protocol.error_codes import error_of
from strom.protocol.frame import RESPONSE_HEAD
from strom.protocol.messages.own import (
    FetchRowsBucketRequest,
    FetchRowsBucketResponse,
    FetchRowsResponse,
)
from strom.runtime.files import Bytes

FIRST_BYTES = 1024 * 1024
"""Asked for first; then twice as much each time. The first rows come soon, and both sides are at work soon."""

Result = TypeVar("Result")


class Loop(Protocol):
    """Runs what is asynchronous, and waits for it."""

    def __call__(self, work: Coroutine[Any, Any, Result]) -> Result: ...


class Part(NamedTuple):
    """What is to be read of one range of the plan."""

    number: int
    """Which range."""
    wanted: BucketRange

    def after(self, offset: int) -> Part:
        """The same without what lies before ``offset``."""
        return Part(self.number, replace(self.wanted, start=offset))


@dataclass
class _Asked:
    """A request whose answer has not been taken."""

    part: Part
    caller: DirectCaller
    request_id: int


class Piece(NamedTuple):
    """One answer."""

    part: Part
    answer: FetchRowsBucketResponse

    def chunk(self, batches: list[Encoded]) -> Chunk:
        """What it brought, once its batches were found in it."""
        return Chunk(self.part.number, self.part.wanted.start, self.part.wanted.end, batches)


class DirectScan:
    """Reads the ranges of a plan in order, for one thread at a time."""

    def __init__(self, source: Source, calls: DirectCalls, ranges: Sequence[BucketRange]) -> None:
        self._source = source
        self._calls = calls
        self._ranges = ranges
        options = source.options
        self._timeout_s = (source.cluster.options.request_timeout_ms + options.wait_ms) / 1000
        self._todo = deque(Part(number, one) for number, one in enumerate(ranges) if one.rows > 0)
        self._asked: deque[_Asked] = deque()
        self._idle: dict[Address, list[DirectCaller]] = {}
        self._bytes_max = options.fetch_bytes_max
        if source.reader.projected_ids:  # who lowers what is fetched at once lowers it for these as well
            self._bytes_max = min(options.projected_bytes_max, 2 * options.fetch_bytes_max)
        self._bytes_next = min(FIRST_BYTES, self._bytes_max)

    @property
    def left(self) -> list[Part]:
        """What was not given out yet."""
        left: dict[int, Part] = {}
        for part in [*(one.part for one in self._asked), *self._todo]:
            left.setdefault(part.number, part)  # the first one of a range goes to the range's end
        return list(left.values())

    def next(self) -> Piece | None:
        """The next answer; None when all is read. After an error nothing but ``left`` and ``close`` makes sense."""
        if not self._asked:
            self._ask()
        if not self._asked:
            return None
        now = self._asked[0]
        answer = self._answer(now)
        assert answer.next_offset is not None
        if len(self._asked) > 1:
            self._check_follows(now.part, answer.next_offset, self._asked[1].part)
        self._asked.popleft()
        self._idle.setdefault(now.caller.address, []).append(now.caller)
        if not self._asked:
            self._go_on(now.part, answer.next_offset)
        return Piece(now.part, answer)

    def close(self) -> None:
        """Let go of the connections. Those that still owe an answer are of no use to others."""
        for one in self._asked:
            one.caller.close()
            self._calls.give_back(one.caller)
        for callers in self._idle.values():
            for caller in callers:
                self._calls.give_back(caller)
        self._asked.clear()
        self._idle.clear()
        self._todo.clear()

    # --- asking --------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Ask for the next part, if there is one."""
        if not self._todo:
            return
        part = self._todo[0]
        source, bucket = self._source, part.wanted.bucket
        address = source.cluster.leader(bucket)
        idle = self._idle.get(address)
        caller = idle.pop() if idle else self._calls.borrow(address)
        wanted = FetchRowsBucketRequest(
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket,
            fetch_offset=part.wanted.start,
            max_bytes=self._bytes_next,
            end_offset=part.wanted.end,
        )
        request = source.request([wanted], wait_ms=source.options.wait_ms, max_bytes=self._bytes_next)
        self._bytes_next = min(2 * self._bytes_next, self._bytes_max)
        source.statistics.requests += 1
        asked = _Asked(part, caller, -1)
        self._asked.append(asked)
        self._todo.popleft()
        asked.request_id = caller.start(FETCH_ROWS, request)

    def _check_follows(self, part: Part, end: int, following: Part) -> None:
        """What was asked for while ``part`` arrived must go on where its answer, now whole and read, ends."""
        same = following.number == part.number
        if end != following.wanted.start if same else end < part.wanted.end:
            raise Disconnected(f"an answer of {part.wanted.bucket} ends elsewhere than it said")

    def _go_on(self, part: Part, offset: int) -> None:
        """Ask for what follows ``part``, of which an answer reaches up to ``offset``."""
        if offset < part.wanted.end:
            self._todo.appendleft(part.after(offset))
        self._ask()

    # --- answers -------------------------------------------------------------------------------------------------

    def _answer(self, asked: _Asked) -> FetchRowsBucketResponse:
        part = asked.part

        def begun(frame: Bytes) -> None:
            offset = number_ahead(FetchRowsResponse, frame, "next_offset", start=RESPONSE_HEAD.size)
            if offset is not None and offset > part.wanted.start and len(self._asked) == 1:
                self._go_on(part, offset)

        response = asked.caller.finish(
            FETCH_ROWS, asked.request_id, timeout_s=self._timeout_s, on_begun=begun
        )
        bucket = part.wanted.bucket
        if len(response.buckets_resp) != 1:
            raise InvalidRequest("the server's answer leaves this bucket out", bucket=bucket)
        answer = response.buckets_resp[0]
        if answer.error_code:
            raise error_of(answer.error_code, answer.error_message)
        if answer.next_offset is None or answer.next_offset <= part.wanted.start:
            raise LeaderNotAvailable(
                f"bucket {bucket} cannot be read up to offset {part.wanted.end} right now", bucket=bucket
            )
        return answer


class BlockingChunks:
    """The chunks of a stream for a thread that blocks: by itself while all goes well, else by the loop."""

    def __init__(self, stream: Chunks, run: Loop) -> None:
        self._stream = stream
        self._run = run
        self._direct: DirectScan | None = None
        ranges = stream.ranges
        if ranges and (calls := ranges[0].source.cluster.direct) is not None:
            self._source = ranges[0].source
            self._direct = DirectScan(self._source, calls, [one.wanted for one in ranges])

    def next(self) -> AnyChunk | None:
        """The next chunk; None at the end."""
        if self._direct is not None:
            try:
                piece = self._direct.next()
            except PASSING:
                self._hand_over(self._direct)
            else:
                return None if piece is None else piece.chunk(self._batches_of(piece.answer))
        return self._run(self._stream.next())

    def _hand_over(self, direct: DirectScan) -> None:
        fetches = [RangeFetch(self._source, part.number, part.wanted) for part in direct.left]
        self._direct = None
        direct.close()
        self._stream = ChunkStream(fetches, parallel=self._source.options.parallel_buckets, ordered=True)

    def _batches_of(self, answer: FetchRowsBucketResponse) -> list[Encoded]:
        batches = self._source.known_batches_of(answer)
        return self._run(self._source.batches_of(answer)) if batches is None else batches

    def close(self) -> None:
        """Let go of the connections; the loop's requests end with ``stream.close``."""
        if self._direct is not None:
            self._direct.close()

    @property
    def stream(self) -> Chunks | None:
        """What the loop reads, and has to close; None while this thread reads by itself: then it never began."""
        return self._stream if self._direct is None else None
