"""Sessions of pulls at a server: which call is the next one, what ends a session, what is said where nobody leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from strom import errors
from strom.model.bucket import BucketId
from strom.protocol.error_codes import CODES
from strom.protocol.messages.replication import PullRequest, PullResponse, WireQuestion
from strom.rpc.promise import Promise
from strom.runtime.tasks import Tasks
from strom.server.replicas.pull_sessions import BETWEEN_CALLS_S, NOT_LED_S, WAIT_S_MAX, PullSessions
from strom.server.replicas.wire import wire_bucket
from strom.testing import loop as virtual
from strom.testing.clock import LoopClock

BUCKET = BucketId(1, None, 0)
OTHER = BucketId(1, None, 1)


class Follower:
    """A copy that does not lead, and the newest epoch that it knows."""

    leading = None

    def __init__(self) -> None:
        self.epoch_known = 3
        self.heard: list[int] = []

    def heard_of(self, epoch: int) -> None:
        self.heard.append(epoch)


class PullScene:
    """Sessions at a server that has one copy, of ``BUCKET``, and does not lead it."""

    def __init__(self) -> None:
        self.replica = Follower()
        find: Any = {BUCKET: self.replica}.get
        readers: Any = None  # nothing is led, so nothing is read
        clock = LoopClock(asyncio.get_running_loop().time)
        self.sessions = PullSessions(find, readers, Tasks(), clock, lambda: True, bytes_max=1000)

    def pull(
        self, *buckets: BucketId, session: int = 1, number: int = 0, wait_ms: int = 1000, **said: Any
    ) -> Promise[PullResponse]:
        """A call of server 7, in its first life unless it is said otherwise; settled at once if it is refused."""
        request = PullRequest(
            **{"server_id": 7, "incarnation": 1, "max_bytes": 1 << 20, **said},
            session=session,
            number=number,
            questions=[question(one) for one in buckets],
            wait_ms=wait_ms,
        )
        found: Any = self.sessions.pull(request)
        if isinstance(found, Promise):
            return found
        settled: Promise[PullResponse] = Promise()
        settled.set_result(found)
        return settled


def question(bucket: BucketId) -> WireQuestion:
    """What a copy that has nothing asks in epoch 2."""
    names = ("disk", "placement", "lineage", "at", "end", "synced", "high")
    journal = ("journal_read", "journal_durable", "journal_began", "barrier")
    return WireQuestion(
        table_id=bucket.table_id,
        bucket_id=bucket.bucket,
        leader_epoch=2,
        ask=1,
        epoch_before=-1,
        **dict.fromkeys((*names, *journal), 0),
    )


def on_a_loop(main: Callable[[PullScene], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await main(PullScene())

    virtual.run(whole())


def is_unknown(call: Promise[PullResponse]) -> bool:
    """Whether a call was told that its session is not known; False if it waits."""
    return call.done() and bool(call.result().unknown_session)


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": 1},
        {"number": 3},
        {"session": 2, "number": 2},
        {"incarnation": 2, "number": 2},
        {"server_id": 8},
    ],
    ids=lambda wrong: ", ".join(wrong),
)
def test_only_the_next_call_of_a_session_continues_it(wrong: dict[str, int]) -> None:
    async def main(scene: PullScene) -> None:
        calls = [scene.pull(), scene.pull(number=1)]
        assert [calls[0].done(), is_unknown(calls[0])] == [True, False], "the newer call takes its place"
        assert is_unknown(scene.pull(**{"number": 2, **wrong}))
        assert not scene.pull(number=2).done()

    on_a_loop(main)


def test_a_newer_session_ends_the_one_before_it_and_an_older_one_is_refused() -> None:
    async def main(scene: PullScene) -> None:
        first = scene.pull(BUCKET, session=5)
        second = scene.pull(session=6)
        assert is_unknown(first)
        assert is_unknown(scene.pull(session=5)), "of a connection that took long"
        assert not second.done()
        restarted = scene.pull(session=1, incarnation=2)
        assert is_unknown(second)
        assert not restarted.done()
        await asyncio.sleep(2 * NOT_LED_S)
        assert not restarted.done(), "the first one's question went with it"

    on_a_loop(main)


def test_a_server_asks_as_long_as_its_connection_stands() -> None:
    async def main(scene: PullScene) -> None:
        assert (scene.sessions.asks(7), scene.sessions.heard_at(7)) == (False, float("-inf"))
        call = scene.pull(BUCKET)
        heard = asyncio.get_running_loop().time()
        assert (scene.sessions.asks(7), scene.sessions.heard_at(7)) == (True, heard)
        await asyncio.sleep(0.01)
        call.cancel()
        assert (scene.sessions.asks(7), scene.sessions.heard_at(7)) == (False, heard)
        assert is_unknown(scene.pull(number=1)), "what was answered may be lost: it begins anew"

    on_a_loop(main)


def test_a_server_that_does_not_call_again_after_an_answer_asks_no_more() -> None:
    """It died in between: there is no call that the end of its connection could end."""

    async def main(scene: PullScene) -> None:
        call = scene.pull(BUCKET)
        await asyncio.sleep(2 * NOT_LED_S)
        assert (call.done(), scene.sessions.asks(7)) == (True, True), "the next call may be on its way"
        await asyncio.sleep(BETWEEN_CALLS_S)
        assert not scene.sessions.asks(7)
        scene.pull(number=1)
        assert scene.sessions.asks(7)

    on_a_loop(main)


@pytest.mark.parametrize(("bucket", "epoch"), [(BUCKET, 3), (OTHER, -1)])
def test_who_does_not_lead_in_time_says_so_with_the_newest_epoch_it_knows(
    bucket: BucketId, epoch: int
) -> None:
    async def main(scene: PullScene) -> None:
        call = scene.pull(bucket)
        await asyncio.sleep(0.9 * NOT_LED_S)
        assert not call.done()
        await asyncio.sleep(0.2 * NOT_LED_S)
        (answer,) = call.result().answers
        assert (answer.error_code, answer.leader_epoch) == (CODES[errors.NotLeader], epoch)
        assert scene.replica.heard == ([2] if bucket == BUCKET else [])

    on_a_loop(main)


def test_who_leads_no_more_says_so_at_once_with_the_epoch_that_ended_it() -> None:
    async def main(scene: PullScene) -> None:
        call = scene.pull(BUCKET, OTHER)
        scene.replica.epoch_known = 9
        scene.sessions.left(BUCKET)
        await asyncio.sleep(0)
        (answer,) = call.result().answers
        assert (answer.error_code, answer.leader_epoch) == (CODES[errors.NotLeader], 9)

    on_a_loop(main)


def test_a_question_that_is_given_up_is_not_answered() -> None:
    async def main(scene: PullScene) -> None:
        scene.pull(BUCKET, OTHER)
        call = scene.pull(number=1, given_up=[wire_bucket(BUCKET)])
        await asyncio.sleep(2 * NOT_LED_S)
        assert [one.bucket_id for one in call.result().answers] == [OTHER.bucket]

    on_a_loop(main)


@pytest.mark.parametrize(
    ("asked_ms", "waited_s"), [(0, 0.0), (-5, 0.0), (40, 0.04), (10_000_000, WAIT_S_MAX)]
)
def test_a_call_without_an_answer_waits_as_long_as_it_asked_within_a_bound(
    asked_ms: int, waited_s: float
) -> None:
    async def main(scene: PullScene) -> None:
        loop = asyncio.get_running_loop()
        began, ended = loop.time(), loop.create_future()
        call = scene.pull(wait_ms=asked_ms)
        call.add_done_callback(lambda _: ended.set_result(loop.time()))
        assert await ended - began == pytest.approx(waited_s)
        assert (list(call.result().answers), call.result().unknown_session) == ([], None)

    on_a_loop(main)


def test_a_server_that_stops_ends_its_sessions_and_begins_none() -> None:
    async def main(scene: PullScene) -> None:
        call = scene.pull()
        scene.sessions.stop()
        assert is_unknown(call)
        assert is_unknown(scene.pull(session=2))
        assert not scene.sessions.asks(7)

    on_a_loop(main)
