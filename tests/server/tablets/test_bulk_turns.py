"""Bulk work takes turns and pauses while small calls are about, and only then."""

from __future__ import annotations

import asyncio

from strom.protocol.api_keys import FETCH_ROWS, LIST_OFFSETS
from strom.rpc.budget import Budget
from strom.rpc.traffic import SMALL_BYTES_MAX, ListenerTraffic
from strom.runtime.clock import SystemClock
from strom.runtime.metrics import Metrics
from strom.runtime.tasks import InlineOffload, Tasks
from strom.server.tablets.bucket_lane import Lane
from strom.server.tablets.bulk_turns import PAUSE_PER_WAIT, PAUSE_S_MAX, PIECE_BYTES, InTurns, Turns
from strom.testing.loop import run


class _Machine:
    """What turns are told: whether small calls are about, how long the loop waited for a core."""

    def __init__(self, *, about: bool = True, waited: float = 0.0, at_once: int = 1) -> None:
        self.about = about
        self.waited = waited
        self.pauses: list[float] = []
        self.turns = Turns(
            lambda: self.about, lambda: self.waited, at_once=at_once, paused=self.pauses.append
        )
        self.inside = 0
        self.most = 0

    async def piece(self) -> None:
        async with self.turns:
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(0.001)
            self.inside -= 1


def test_beside_small_calls_a_few_pieces_run_at_once() -> None:
    machine = _Machine(at_once=2)

    async def main() -> None:
        await asyncio.gather(*(machine.piece() for _ in range(20)))

    run(main())
    assert machine.most == 2
    assert machine.inside == 0


def test_where_nobody_asks_small_things_all_run_at_once() -> None:
    machine = _Machine(about=False, waited=1.0)

    async def main() -> None:
        await asyncio.gather(*(machine.piece() for _ in range(20)))

    run(main())
    assert machine.most == 20
    assert machine.pauses == []


def test_a_pause_follows_how_long_the_loop_waited_up_to_a_bound() -> None:
    machine = _Machine()

    async def main() -> None:
        for machine.waited in (0.0, 0.003, 7.0):
            await machine.piece()

    run(main())
    assert machine.pauses == [0.003 * PAUSE_PER_WAIT, PAUSE_S_MAX]


def test_whoever_goes_away_keeps_no_turn() -> None:
    machine = _Machine(waited=0.01)

    async def main() -> None:
        running = asyncio.ensure_future(machine.piece())  # pauses
        await asyncio.sleep(0)
        waiting = [asyncio.ensure_future(machine.piece()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        running.cancel()  # gives the turn to the second, which goes at the same moment
        await asyncio.sleep(0)
        waiting[1].cancel()
        await asyncio.gather(running, *waiting[:2], return_exceptions=True)
        await asyncio.wait_for(waiting[2], 1.0)
        await asyncio.wait_for(machine.piece(), 1.0)

    run(main())
    assert machine.most == 1
    assert machine.inside == 0


def test_pieces_are_smaller_beside_small_calls() -> None:
    machine = _Machine()
    assert machine.turns.piece(8 * PIECE_BYTES) == PIECE_BYTES
    assert machine.turns.piece(100) == 100
    machine.about = False
    assert machine.turns.piece(8 * PIECE_BYTES) == 8 * PIECE_BYTES


def test_the_bulk_jobs_of_a_lane_wait_for_their_turn_and_the_order_stays() -> None:
    machine = _Machine(waited=0.01)
    seen: list[str] = []

    async def main() -> None:
        offload, tasks = InlineOffload(), Tasks()
        lane = Lane("test", offload, tasks, InTurns(offload, machine.turns))
        jobs = [
            lane.submit(lambda: seen.append("first"), bulk=True),
            lane.submit(lambda: seen.append("second")),
            lane.submit(lambda: seen.append("third"), bulk=True),
        ]
        await asyncio.gather(*jobs)
        await tasks.close()

    run(main())
    assert seen == ["first", "second", "third"]
    assert len(machine.pauses) == 2


def test_a_small_call_for_rows_is_noticed_and_no_other() -> None:
    budget = Budget(1)
    traffic = ListenerTraffic("one", Metrics(), SystemClock(), budget)
    traffic.answered(FETCH_ROWS, traffic.now(), 100, [b"x" * SMALL_BYTES_MAX])
    traffic.answered(LIST_OFFSETS, traffic.now(), 100, [b"x"])
    traffic.answered(None, traffic.now(), 100, [b"x"])
    assert budget.small_at == float("-inf")
    traffic.answered(FETCH_ROWS, traffic.now(), 100, [b"x"])
    assert 0.0 <= traffic.now() - budget.small_at < 60.0
