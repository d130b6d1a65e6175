"""A server that stopped answering is given up where another one answers; a busy one, or one alone, is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from server.membership.test_coordinators import now, simulated, started
from server.membership.test_tablets import catalog
from strom.client.cluster.address import Address
from strom.client.cluster.connection_watch import ConnectionWatch
from strom.client.cluster.silent_servers import AGAIN_S, PROBE_S, SHUN_S, SilentServers
from strom.errors import AuthenticationFailed, Disconnected, RequestTimeout, StromError
from strom.testing import loop as virtual
from strom.testing.clock import LoopClock
from strom.testing.machines import PORT, SimulatedMachines
from waiting import until

HERE = Address("here", 1)
THERE = Address("there", 2)


class Question:
    """What a probe of a server, and the question to others, get for an answer."""

    def __init__(self) -> None:
        self.answer: StromError | float = 0.0
        """An error, or the seconds that the answer takes."""
        self.others = True
        self.asked = 0

    async def ask(self, address: Address, timeout_s: float) -> None:
        self.asked += 1
        if isinstance(self.answer, StromError):
            raise self.answer
        async with asyncio.timeout(timeout_s):
            await asyncio.sleep(self.answer)

    async def ask_others(self, address: Address, timeout_s: float) -> bool:
        return self.others


Main = Callable[[SilentServers, Question], Coroutine[Any, Any, None]]


def on_a_loop(main: Main) -> None:
    async def whole() -> None:
        question = Question()
        clock = LoopClock(asyncio.get_running_loop().time)
        servers = SilentServers(clock, question.ask, question.ask_others)
        await main(servers, question)
        await servers.close()

    virtual.run(whole())


def test_one_that_does_not_answer_is_given_up_if_another_does() -> None:
    async def main(servers: SilentServers, question: Question) -> None:
        question.answer = 10.0
        began = now()
        assert await servers.is_gone(HERE)
        assert now() - began == pytest.approx(PROBE_S)
        with pytest.raises(Disconnected, match="here:1 does not answer any more, and other servers do"):
            servers.check(HERE)
        servers.check(THERE)
        assert await servers.is_gone(HERE)
        assert question.asked == 1, "who wonders next is told at once"
        await asyncio.sleep(SHUN_S)
        servers.check(HERE)

    on_a_loop(main)


@pytest.mark.parametrize("problem", [Disconnected("refused"), RequestTimeout("late")])
def test_one_that_cannot_be_reached_is_given_up_too(problem: StromError) -> None:
    async def main(servers: SilentServers, question: Question) -> None:
        question.answer = problem
        assert await servers.is_gone(HERE)

    on_a_loop(main)


def test_one_that_refuses_answers() -> None:
    async def main(servers: SilentServers, question: Question) -> None:
        question.answer = AuthenticationFailed("who are you?")
        assert not await servers.is_gone(HERE)

    on_a_loop(main)


def test_a_server_that_is_alone_is_waited_for() -> None:
    async def main(servers: SilentServers, question: Question) -> None:
        question.answer, question.others = 10.0, False
        assert not await servers.is_gone(HERE)
        servers.check(HERE)

    on_a_loop(main)


def test_a_busy_server_is_asked_now_and_then_and_once_for_all_who_wonder() -> None:
    async def main(servers: SilentServers, question: Question) -> None:
        question.answer = 0.1
        assert await asyncio.gather(*(servers.is_gone(HERE) for _ in range(10))) == [False] * 10
        assert not await servers.is_gone(HERE)
        assert question.asked == 1
        await asyncio.sleep(AGAIN_S)
        assert not await servers.is_gone(HERE)
        assert question.asked == 2

    on_a_loop(main)


# --- watching connections ---------------------------------------------------------------------------------------------


class Watched:
    """A connection that a test lets receive bytes, or not."""

    def __init__(self) -> None:
        self.owes_answer = True
        self.bytes_received = 0
        self.ended: StromError | None = None

    def abandon(self, reason: StromError) -> None:
        self.ended = reason


async def watching(servers: SilentServers, *connections: Watched) -> ConnectionWatch:
    clock = LoopClock(asyncio.get_running_loop().time)
    watch = ConnectionWatch(servers, clock, lambda: [(HERE, one) for one in connections], lambda: False)
    watch.wake()
    return watch


def test_a_connection_on_which_nothing_comes_is_ended_when_its_server_is_gone() -> None:
    async def main(servers: SilentServers, question: Question) -> None:
        question.answer = 10.0
        silent = Watched()
        began = now()
        await watching(servers, silent)
        await until(lambda: silent.ended is not None, 5.0)
        assert 1.1 <= now() - began <= 1.3
        assert isinstance(silent.ended, Disconnected)

    on_a_loop(main)


def test_a_server_that_freezes_just_after_it_was_asked_is_given_up_as_soon_as_any() -> None:
    async def main(servers: SilentServers, question: Question) -> None:
        question.answer = 0.1
        silent = Watched()
        await watching(servers, silent)
        await until(lambda: question.asked == 1, 5.0)
        await asyncio.sleep(0.2)
        question.answer = 10.0
        frozen = now()
        await until(lambda: silent.ended is not None, 5.0)
        assert now() - frozen <= 1.3

    on_a_loop(main)


def test_a_connection_on_which_bytes_come_or_nothing_is_awaited_is_left_alone() -> None:
    async def main(servers: SilentServers, question: Question) -> None:
        question.answer = 10.0
        busy, idle = Watched(), Watched()
        idle.owes_answer = False
        await watching(servers, busy, idle)
        for _ in range(100):
            await asyncio.sleep(0.3)
            busy.bytes_received += 1
        assert (busy.ended, idle.ended) == (None, None)
        assert question.asked == 0

    on_a_loop(main)


def test_it_looks_only_while_something_is_awaited() -> None:
    async def main(servers: SilentServers, question: Question) -> None:
        quiet = Watched()
        quiet.owes_answer = False
        watch = await watching(servers, quiet)
        await asyncio.sleep(1.0)
        assert watch._next is None
        quiet.owes_answer = True
        question.answer = 10.0
        watch.wake()
        await asyncio.sleep(2.0)
        assert quiet.ended is not None
        await watch.close()

    on_a_loop(main)


# --- a cluster --------------------------------------------------------------------------------------------------------


def test_writers_and_readers_go_on_when_a_leader_is_frozen() -> None:
    """Nothing says that a connection is dead: the server is there, and does not run."""

    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1", "c2")
        for server_id in (1, 2, 3):
            await machines.start_tablet(f"t{server_id}", server_id)
        database = await machines.connect("client", f"c1:{PORT},c2:{PORT}")
        table = await database.create_table("t", {"a": "BIGINT"}, buckets=1)
        await table.append([{"a": 1}])
        await database.flush()
        (bucket,) = catalog(machines).replicas
        leader = catalog(machines).leader_of(bucket)
        frozen = now()
        machines.network.stall(f"t{leader}")
        machines.network.stall("c2")  # of those who are asked about it, one says nothing
        await table.append([{"a": 2}])
        await database.flush()
        assert now() - frozen < 2.0
        assert (await table.scan().to_arrow())["a"].to_pylist() == [1, 2]
        machines.network.heal()
        coordinator = "c1"
        frozen = now()
        machines.network.stall(coordinator)
        await database.create_table("another", {"a": "BIGINT"})
        assert now() - frozen < 3.0

    simulated(main)
