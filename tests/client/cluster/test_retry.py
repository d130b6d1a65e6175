"""When a client retries, how long it pauses, and when it gives up."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from strom.client.cluster.options import ClientOptions
from strom.client.cluster.retry import Backoff, Retrying
from strom.errors import Busy, InvalidRequest, NotLeader, ServerStopping, StromError
from strom.testing import loop as virtual
from strom.testing.clock import LoopClock
from strom.testing.random import SeededRandomness

OPTIONS = ClientOptions(retry_timeout_ms=1_000, backoff_ms=20, backoff_ms_max=100)


def retrying(options: ClientOptions = OPTIONS) -> Retrying:
    return Retrying(options, LoopClock(asyncio.get_running_loop().time), SeededRandomness(1))


@pytest.mark.parametrize(
    ("failures", "longest_ms"), [(1, 20), (2, 40), (3, 80), (4, 100), (30, 100), (500, 100)]
)
def test_pauses_double_up_to_the_longest_and_differ_by_up_to_half(failures: int, longest_ms: int) -> None:
    backoff = Backoff(OPTIONS, SeededRandomness(1))
    pauses = [backoff.seconds(failures) * 1000 for _ in range(200)]
    assert longest_ms / 2 <= min(pauses) < longest_ms * 0.6
    assert longest_ms * 0.9 < max(pauses) <= longest_ms


def test_what_passes_is_tried_again_and_told_before_each_attempt() -> None:
    async def main() -> None:
        problems: list[StromError] = [Busy("a"), ServerStopping("b"), NotLeader("c")]
        left, told = list(problems), []

        async def attempt() -> str:
            if left:
                raise left.pop(0)
            return "done"

        async def between(error: StromError) -> None:
            told.append(error)

        assert await retrying().run(attempt, between=between) == "done"
        assert told == problems

    virtual.run(main())


@pytest.mark.parametrize(("refusals", "paused"), [(1, False), (2, True)])
def test_a_leader_that_has_moved_is_looked_for_without_a_pause_once(refusals: int, paused: bool) -> None:
    async def main() -> None:
        left = [NotLeader("moved") for _ in range(refusals)]
        looked: list[float] = []

        async def attempt() -> None:
            if left:
                raise left.pop(0)

        async def between(error: StromError) -> None:
            looked.append(asyncio.get_running_loop().time())

        began = asyncio.get_running_loop().time()
        await retrying().run(attempt, between=between)
        assert looked[0] == began
        assert (looked[-1] > began) is paused

    virtual.run(main())


def test_what_does_not_pass_is_raised_at_once() -> None:
    async def main() -> None:
        attempts = itertools.count()

        async def attempt() -> None:
            next(attempts)
            raise InvalidRequest("no")

        with pytest.raises(InvalidRequest):
            await retrying().run(attempt)
        assert next(attempts) == 1

    virtual.run(main())


def test_it_ends_with_the_last_error_before_the_time_is_over() -> None:
    async def main() -> None:
        numbers = itertools.count(1)

        async def attempt() -> None:
            raise Busy(f"attempt {next(numbers)}")

        began = asyncio.get_running_loop().time()
        with pytest.raises(Busy) as caught:
            await retrying().run(attempt)
        took = asyncio.get_running_loop().time() - began
        assert 0.85 < took <= 1.0, "no pause that ends after the time is begun"
        assert caught.value.message == f"attempt {caught.value.facts['attempts']}"
        assert 10 < caught.value.facts["attempts"] < 30

    virtual.run(main())
