"""Work that is done once for all who asked before it began."""

from __future__ import annotations

import asyncio
import gc

import pytest

from strom.server.tablets.shared_turn import SharedTurn
from strom.testing.loop import run


class Work:
    """Takes a second; notes when each turn began."""

    def __init__(self) -> None:
        self.began: list[float] = []
        self.fails = False

    async def __call__(self) -> None:
        self.began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1.0)
        if self.fails:
            raise OSError("no luck")


def test_whoever_asks_during_a_turn_shares_the_next_one() -> None:
    async def main() -> None:
        work = Work()
        turn = SharedTurn(work)
        began = asyncio.get_running_loop().time()
        first = asyncio.ensure_future(turn())
        await asyncio.sleep(0.5)
        await asyncio.gather(*(turn() for _ in range(100)))
        assert first.done()
        assert [at - began for at in work.began] == pytest.approx([0.0, 1.0])

    run(main())


def test_turns_begin_no_more_often_than_the_pause_allows() -> None:
    async def main() -> None:
        work = Work()
        turn = SharedTurn(work, pause_s=5.0)
        began = asyncio.get_running_loop().time()
        for _ in range(3):
            await turn()
        assert [at - began for at in work.began] == pytest.approx([0.0, 5.0, 10.0])

    run(main())


def test_a_failure_is_told_to_all_who_shared_it_and_to_nobody_else() -> None:
    async def main() -> None:
        work = Work()
        work.fails = True
        turn = SharedTurn(work)
        failed = await asyncio.gather(turn(), turn(), return_exceptions=True)
        assert [type(one) for one in failed] == [OSError, OSError]
        work.fails = False
        await turn()

    run(main())


def test_one_who_stops_waiting_takes_the_turn_from_nobody() -> None:
    async def main() -> None:
        work = Work()
        turn = SharedTurn(work)
        leaving, staying = asyncio.ensure_future(turn()), asyncio.ensure_future(turn())
        await asyncio.sleep(0.5)
        leaving.cancel()
        await staying
        assert len(work.began) == 1

    run(main())


def test_a_turn_that_ends_with_its_loop_or_fails_when_nobody_waits_is_no_error_of_the_loop() -> None:
    told: list[object] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        work = Work()
        work.fails = True
        waiting = asyncio.ensure_future(SharedTurn(work)())
        await asyncio.sleep(0.5)
        waiting.cancel()  # who asked is gone; the turn goes on, and fails
        await asyncio.sleep(1.0)
        under_way = asyncio.ensure_future(SharedTurn(work)())
        await asyncio.sleep(0.5)
        everything = asyncio.all_tasks() - {asyncio.current_task()}
        assert len(everything) == 2
        for task in everything:  # as at the end of a loop
            task.cancel()
        await asyncio.gather(*everything, return_exceptions=True)
        await asyncio.sleep(0)
        assert under_way.cancelled()

    run(main())
    gc.collect()
    assert told == []
