"""The chunks of a primary-key scan for a thread that blocks: it receives them itself, one request ahead.

A slice says in its beginning where the next one begins, so that is asked for, on another connection, while the first
is still arriving. What may pass when it is tried again is left to the loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from strom.client.address import Address
from strom.client.direct import DirectCaller, DirectCalls
from strom.client.direct_scan import FIRST_BYTES, BlockingChunks, Loop
from strom.client.fetching import Chunk, ChunkStream
from strom.client.key_plan import Instant, KeyScanPlan
from strom.client.key_scan import PLANS_MAX, InstantFetch, KeyScan, KeyStream
from strom.client.retry import PASSING
from strom.client.rows import RowReader
from strom.client.scan import AnyChunk, Chunks
from strom.errors import Disconnected, Expired, InvalidRequest
from strom.protocol.ahead import number_ahead
from strom.protocol.api_keys import SCAN_ROWS
from strom.protocol.error_codes import error_of
from strom.protocol.frame import RESPONSE_HEAD
from strom.protocol.message import whole
from strom.protocol.messages.own_keys import ScanRowsResponse
from strom.record.batch import split
from strom.runtime.files import Bytes


class Part(NamedTuple):
    """What is to be read of one bucket, from a cursor to its end."""

    number: int
    instant: Instant
    cursor: int | None


class _Asked(NamedTuple):
    """A request whose answer has not been taken."""

    part: Part
    caller: DirectCaller
    request_id: int


class DirectKeyScan:
    """Reads the instants of a plan in order, for one thread at a time."""

    def __init__(
        self, scan: KeyScan, reader: RowReader, calls: DirectCalls, instants: Sequence[Instant]
    ) -> None:
        self._scan = scan
        self._reader = reader
        self._calls = calls
        self._timeout_s = scan.cluster.options.request_timeout_ms / 1000
        self._todo = deque(Part(number, instant, None) for number, instant in enumerate(instants))
        self._asked: deque[_Asked] = deque()
        self._idle: dict[Address, list[DirectCaller]] = {}
        self._bytes_next = min(FIRST_BYTES, scan.fetch_bytes_max)

    @property
    def left(self) -> list[Part]:
        """What was not given out yet."""
        left: dict[int, Part] = {}
        for part in [*(one.part for one in self._asked), *self._todo]:
            left.setdefault(part.number, part)  # the first one of a bucket goes to the bucket's end
        return list(left.values())

    def next(self) -> tuple[Part, ScanRowsResponse] | None:
        """The next answer; None when all is read. After an error nothing but ``left`` and ``close`` makes sense."""
        if not self._asked:
            self._ask()
        if not self._asked:
            return None
        now = self._asked[0]
        answer = self._answer(now)
        if len(self._asked) > 1:
            self._check_follows(now.part, answer.next_cursor, self._asked[1].part)
        self._asked.popleft()
        self._idle.setdefault(now.caller.address, []).append(now.caller)
        if not self._asked:
            self._go_on(now.part, answer.next_cursor)
        return now.part, answer

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

    def _ask(self) -> None:
        if not self._todo:
            return
        part = self._todo[0]
        address = self._scan.cluster.leader(part.instant.bucket)
        idle = self._idle.get(address)
        caller = idle.pop() if idle else self._calls.borrow(address)
        request = self._scan.request(part.instant, part.cursor, self._reader, max_bytes=self._bytes_next)
        self._bytes_next = min(2 * self._bytes_next, self._scan.fetch_bytes_max)
        try:
            request_id = caller.start(SCAN_ROWS, request)
        except BaseException:
            self._calls.give_back(caller)
            raise
        self._asked.append(_Asked(self._todo.popleft(), caller, request_id))

    def _go_on(self, part: Part, cursor: int | None) -> None:
        """Ask for what follows ``part``, whose answer ends at ``cursor``."""
        if cursor is not None:
            self._todo.appendleft(part._replace(cursor=cursor))
        self._ask()

    def _check_follows(self, part: Part, cursor: int | None, following: Part) -> None:
        """What was asked for while ``part`` arrived must go on where its answer, now whole and read, ends."""
        if following != part._replace(cursor=cursor):
            raise Disconnected(f"an answer of {part.instant.bucket} ends elsewhere than it said")

    def _answer(self, asked: _Asked) -> ScanRowsResponse:
        part = asked.part

        def begun(frame: Bytes) -> None:
            cursor = number_ahead(ScanRowsResponse, frame, "next_cursor", start=RESPONSE_HEAD.size)
            if cursor is not None and cursor > (part.cursor or 0) and len(self._asked) == 1:
                self._go_on(part, cursor)

        answer = asked.caller.finish(SCAN_ROWS, asked.request_id, timeout_s=self._timeout_s, on_begun=begun)
        if answer.error_code:
            raise error_of(answer.error_code, answer.error_message)
        if answer.next_cursor is not None and part.cursor is not None and answer.next_cursor <= part.cursor:
            raise InvalidRequest("the server's answer leads nowhere", bucket=part.instant.bucket)
        return answer


class BlockingKeyChunks:
    """The chunks of a key scan for a thread that blocks: by itself while all goes well, else by the loop."""

    def __init__(self, stream: KeyStream, run: Loop) -> None:
        self._stream: Chunks = stream
        self._run = run
        self._scan = stream.scan
        self._reader = stream.reader
        self._direct = self._direct_for(stream.plan)
        self._plans = 1
        self._delivered = False

    def _direct_for(self, plan: KeyScanPlan) -> DirectKeyScan | None:
        calls = self._scan.cluster.direct
        if calls is None or self._scan.limit is not None:
            return None  # with a limit, what is asked for ahead would mostly be thrown away
        return DirectKeyScan(self._scan, self._reader, calls, plan.instants)

    def next(self) -> AnyChunk | None:
        """The next chunk; None at the end."""
        while (direct := self._direct) is not None:
            try:
                found = direct.next()
            except Expired as error:
                direct.close()
                if self._delivered or self._plans == PLANS_MAX:
                    raise
                self._plans += 1
                self._direct = self._direct_for(self._run(self._scan.plan_again(error)))
                continue
            except PASSING:
                self._hand_over(direct)
                break
            self._delivered = True
            return None if found is None else self._chunk(*found)
        return self._run(self._stream.next())

    def _chunk(self, part: Part, answer: ScanRowsResponse) -> Chunk:
        batches = split(whole(answer.records or b""))
        for schema_id in {header.schema_id for header, _ in batches}:
            if not self._reader.knows(schema_id):
                self._run(self._scan.learn(schema_id, self._reader))
        self._scan.statistics.bytes_fetched += sum([header.size for header, _ in batches])
        return Chunk(part.number, 0, part.instant.at, batches)

    def _hand_over(self, direct: DirectKeyScan) -> None:
        left = direct.left
        self._direct = None
        direct.close()
        fetches = [InstantFetch(self._scan, *part[:2], self._reader, cursor=part.cursor) for part in left]
        self._stream = ChunkStream(fetches, parallel=self._scan.parallel, ordered=True)

    def close(self) -> None:
        """Let go of the connections; the loop's requests end with ``stream.close``."""
        if self._direct is not None:
            self._direct.close()

    @property
    def stream(self) -> Chunks:
        """What the loop reads."""
        return self._stream


def blocking_chunks(stream: Chunks, run: Loop) -> BlockingChunks | BlockingKeyChunks:
    """The chunks of any stream, for a thread that blocks."""
    return BlockingKeyChunks(stream, run) if isinstance(stream, KeyStream) else BlockingChunks(stream, run)
