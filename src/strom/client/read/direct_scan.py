"""The chunks of a scan for a thread that blocks: it receives them itself, on sockets of its own.

No loop and no other thread has a part in it, so no byte waits for one. The next request leaves as soon as the
beginning of an answer says where that answer will end, on another connection: the server reads while this thread
receives and decodes. So three answers exist at most: one being decoded, one arriving, one at the server.

Only the smooth course is handled here. Whatever may pass when it is tried again (a broken connection, another leader)
ends it, and the loop, which knows how to try again, reads what is ``left``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from strom.client.cluster.address import Address
from strom.client.cluster.direct_caller import DirectCaller
from strom.client.cluster.direct_calls import DirectCalls
from strom.client.read.bucket_read import Chunks, Part, Question
from strom.client.read.scan_chunk import AnyChunk, Chunk
from strom.errors import Disconnected, StromError
from strom.runtime.files import Bytes

FIRST_BYTES = 1024 * 1024
"""Asked for first; then twice as much each time. The first rows come soon, and both sides are at work soon."""

Result = TypeVar("Result")


class Loop(Protocol):
    """Runs what is asynchronous, and waits for it."""

    def __call__(self, work: Coroutine[Any, Any, Result]) -> Result: ...


@dataclass(frozen=True)
class _Asked:
    """A request whose answer has not been taken."""

    part: Part
    caller: DirectCaller
    request_id: int


class Piece(NamedTuple):
    """One answer."""

    part: Part
    answer: Any


class DirectScan:
    """Reads the parts of a question in order, for one thread at a time."""

    def __init__(self, question: Question, calls: DirectCalls) -> None:
        self._question = question
        self._calls = calls
        self._todo = deque(question.parts)
        self._asked: deque[_Asked] = deque()
        self._idle: dict[Address, list[DirectCaller]] = {}
        self._bytes_next = min(FIRST_BYTES, question.bytes_max)

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
        reached = self._question.reached(now.part, answer)
        if len(self._asked) > 1:
            self._check_follows(now.part, reached, self._asked[1].part)
        self._asked.popleft()
        self._idle.setdefault(now.caller.address, []).append(now.caller)
        if not self._asked:
            try:
                self._go_on(now.part, reached)
            except StromError:
                pass  # this answer is whole and counts; what follows is in ``left``, and is asked for again next time
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
        """Ask for the next part, if there is one. After an error it is still the next one."""
        if not self._todo:
            return
        part, question = self._todo[0], self._question
        address = question.cluster.leader(part.bucket)
        idle = self._idle.get(address)
        caller = idle.pop() if idle else self._calls.borrow(address)
        try:
            request_id = caller.start(question.api, question.request(part, self._bytes_next))
        except BaseException:
            caller.close()  # a part of the request may be on its way
            self._calls.give_back(caller)
            raise
        self._bytes_next = min(2 * self._bytes_next, question.bytes_max)
        self._asked.append(_Asked(part, caller, request_id))
        self._todo.popleft()

    def _check_follows(self, part: Part, reached: int, following: Part) -> None:
        """What was asked for while ``part`` arrived must go on where its answer, now whole and read, ends."""
        same = following.number == part.number
        if reached != following.start if same else reached < part.end:
            raise Disconnected(f"an answer of {part.bucket} ends elsewhere than it said")

    def _go_on(self, part: Part, reached: int) -> None:
        """Ask for what follows ``part``, of which an answer ends at ``reached``."""
        if reached < part.end:
            self._todo.appendleft(part.after(reached))
        self._ask()

    # --- answers -------------------------------------------------------------------------------------------------

    def _answer(self, asked: _Asked) -> Any:
        part, question = asked.part, self._question

        def begun(frame: Bytes) -> None:
            reached = question.ahead(part, frame)
            if reached is not None and reached > part.start and len(self._asked) == 1:
                self._go_on(part, reached)

        return asked.caller.finish(
            question.api, asked.request_id, timeout_s=question.timeout_s, on_begun=begun
        )


class BlockingChunks:
    """The chunks of a stream for a thread that blocks: by itself while all goes well, else by the loop."""

    def __init__(self, stream: Chunks, run: Loop) -> None:
        self._stream = stream
        self._run = run
        self._direct: DirectScan | None = None
        self._begun = False
        question = stream.question
        if question is not None and question.parts and (calls := question.cluster.direct) is not None:
            self._question = question
            self._direct = DirectScan(question, calls)

    def next(self) -> AnyChunk | None:
        """The next chunk; None at the end."""
        if self._direct is not None:
            try:
                piece = self._direct.next()
            except StromError as error:
                if not self._question.passes(error, begun=self._begun):
                    raise
                self._hand_over(self._direct)
            else:
                self._begun = True
                return None if piece is None else self._chunk_of(piece)
        return self._run(self._stream.next())

    def _hand_over(self, direct: DirectScan) -> None:
        if self._begun:  # else the stream is there as it was made, and may still be planned anew
            self._stream = self._question.rest(direct.left)
        self._direct = None
        direct.close()

    def _chunk_of(self, piece: Piece) -> Chunk:
        part, answer = piece
        chunk = self._question.chunk(part, answer)
        return self._run(self._question.chunk_learned(part, answer)) if chunk is None else chunk

    def close(self) -> None:
        """Let go of the connections; the loop's requests end with ``stream.close``."""
        if self._direct is not None:
            self._direct.close()

    @property
    def stream(self) -> Chunks | None:
        """What the loop reads, and has to close; None while this thread reads by itself: then it never began."""
        return self._stream if self._direct is None else None
