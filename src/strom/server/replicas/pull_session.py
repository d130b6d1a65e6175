"""The questions of one follower, as they stand before a leader.

A question stands until there is something to answer. Answers leave with the call that waits, a newer call takes the
place of an older one. Buckets with news are answered in the order in which they got them, so that a busy bucket does
not keep others from their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from strom.model.bucket import BucketId
from strom.protocol.message import Message
from strom.protocol.messages.replication import PullResponse, WireAnswer
from strom.rpc.promise import Promise
from strom.server.replicas.pull_answers import StandingQuestion

TELL_HIGH_S = 0.005
"""A watermark that nothing else goes with waits this long: the next rows may take it along."""


class WaitingCall:
    """A call that waits for answers."""

    def __init__(self, max_bytes: int, wait_s: float) -> None:
        self.promise: Promise[Message] = Promise()
        self.max_bytes = max_bytes
        self.wait_s = wait_s
        self._timer = asyncio.get_running_loop().call_later(wait_s, self.answer, ())
        self.promise.add_done_callback(lambda _: self._timer.cancel())

    def answer(self, answers: tuple[WireAnswer, ...] | list[WireAnswer]) -> None:
        """Answer it; once."""
        self.promise.set_result(PullResponse(answers=answers))


class PullSession:
    """One session of one follower. Belongs to the loop."""

    def __init__(
        self, server_id: int, incarnation: int, number: int, pump: Callable[[PullSession], None]
    ) -> None:
        self.server_id = server_id
        self.incarnation = incarnation
        self.number = number
        self.calls = 0
        self.standing: dict[BucketId, StandingQuestion] = {}
        self.ready: dict[BucketId, None] = {}
        self.waiting: WaitingCall | None = None
        self.answered_at = float("-inf")
        """When no call waited any more."""
        self.building = False
        """Whether a task reads what will be answered."""
        self.told: list[WireAnswer] = []
        """Answers without rows, which are ready as they are."""
        self._pump = pump
        self._soon: asyncio.Handle | None = None
        self._later: asyncio.TimerHandle | None = None

    def wait(self, call: WaitingCall) -> None:
        """A newer call takes the place of the one that waits."""
        before, self.waiting = self.waiting, call
        if before is not None:
            before.answer(())
        if self.ready or self.told:
            self.pump_soon()

    def tell(self, answer: WireAnswer, bucket: BucketId) -> None:
        """Answer a question with what needs no reading."""
        self.standing.pop(bucket, None)
        self.ready.pop(bucket, None)
        self.told.append(answer)
        self.pump_soon()

    def news(self, bucket: BucketId, *, urgent: bool) -> None:
        """There is something to answer about a bucket."""
        self.ready[bucket] = None
        if urgent:
            self.pump_soon()
        elif self._later is None and self._soon is None:
            self._later = asyncio.get_running_loop().call_later(TELL_HIGH_S, self._run)

    def pump_soon(self) -> None:
        """Answer in this turn of the loop, after everything that happens in it."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._run)

    def forget(self, bucket: BucketId) -> None:
        """The follower has given the bucket up."""
        self.standing.pop(bucket, None)
        self.ready.pop(bucket, None)

    def end(self) -> None:
        """Another session takes its place, or the server stops."""
        self._cancel()
        self.standing.clear()
        self.ready.clear()
        if self.waiting is not None:
            self.waiting.promise.set_result(PullResponse(unknown_session=True))
            self.waiting = None

    def _run(self) -> None:
        self._cancel()
        if not self.building:
            self._pump(self)

    def _cancel(self) -> None:
        for handle in (self._soon, self._later):
            if handle is not None:
                handle.cancel()
        self._soon = self._later = None
