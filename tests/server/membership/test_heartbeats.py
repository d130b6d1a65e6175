"""Control connections on virtual time: how soon a server that is gone, or silent, is noticed, and one that is back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from server.membership.machines import Machines, ids, on_machines
from strom.protocol.api_keys import HEARTBEAT, Api
from strom.protocol.message import Message
from strom.protocol.messages.inner import HeartbeatResponse
from strom.rpc.call import Call
from strom.server.calls.dispatch import CallHandler
from strom.server.membership.heartbeats import HeartbeatCalls, Heartbeats
from waiting import until

HEARTBEAT_S, SUSPECT_S = 0.2, 0.6
SERVERS = {1: "one", 2: "two", 3: "three"}


class Watch:
    """A coordinator's heartbeats, and when it decided what."""

    def __init__(self) -> None:
        self.found: list[tuple[float, str, int]] = []
        self.registered = dict.fromkeys(SERVERS, 100)
        self.beats = Heartbeats(
            heartbeat_s=HEARTBEAT_S,
            suspect_after_s=SUSPECT_S,
            decided=lambda verdicts: self.found.extend(
                (asyncio.get_running_loop().time(), *one) for one in ids(verdicts)
            ),
        )

    @property
    def verdicts(self) -> list[tuple[str, int]]:
        return [(kind, server_id) for _, kind, server_id in self.found]

    async def next(self, count: int, within_s: float = 10.0) -> float:
        """Wait until so many were found; the time of the last."""
        await until(lambda: len(self.found) >= count, within_s)
        assert len(self.found) == count
        return self.found[-1][0]


@asynccontextmanager
async def watched(machines: Machines) -> AsyncIterator[Watch]:
    watch = Watch()
    for server_id, host in SERVERS.items():
        await machines.listen(host, HeartbeatCalls(100))
        watch.beats.follow(
            server_id,
            machines.link("coordinator", host),
            lambda answer, server_id=server_id: answer.incarnation == watch.registered[server_id],
        )
    running = asyncio.ensure_future(watch.beats.run())
    await asyncio.sleep(3.05)  # between two heartbeats
    assert watch.found == [], "all are there"
    try:
        yield watch
    finally:
        running.cancel()
        await watch.beats.close()


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_killed_process_is_noticed_within_its_grace() -> None:
    async def main(machines: Machines) -> None:
        async with watched(machines) as watch:
            killed = now()
            machines.kill("two")
            noticed = await watch.next(1)
            assert 0.049 < noticed - killed < 0.07
            assert watch.verdicts == [("Suspected", 2)]
            assert watch.beats.liveness.alive == {1, 3}

    on_machines(main)


def test_a_silent_machine_is_noticed_after_the_silence() -> None:
    async def main(machines: Machines) -> None:
        async with watched(machines) as watch:
            stalled = now()
            machines.network.stall("two")
            noticed = await watch.next(1)
            assert SUSPECT_S - HEARTBEAT_S <= noticed - stalled <= SUSPECT_S + 0.01
            assert watch.verdicts == [("Suspected", 2)]

    on_machines(main)


def test_a_machine_whose_connection_broke_and_that_does_not_answer_has_the_time_of_a_silent_one() -> None:
    async def main(machines: Machines) -> None:
        async with watched(machines) as watch:
            machines.network.set_delay(0.05)
            await asyncio.sleep(0.17)  # a question is on its way
            cut = now()
            machines.network.cut("two")
            machines.network.stall("two")
            noticed = await watch.next(1)
            assert SUSPECT_S - HEARTBEAT_S - 0.05 <= noticed - cut <= SUSPECT_S + 0.01

    on_machines(main)


def test_one_that_answers_on_new_connections_only_is_there() -> None:
    """Its machine was restarted, and does not know the connection of before."""

    class Forgetful:
        def __init__(self) -> None:
            self.deaf_on: set[int] = set()

        def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
            return {HEARTBEAT: self.answer}

        async def answer(self, call: Call) -> Message:
            if call.connection_id in self.deaf_on:
                await asyncio.get_running_loop().create_future()
            return HeartbeatResponse(incarnation=100)

    async def main(machines: Machines) -> None:
        async with watched(machines) as watch:
            machines.kill("two")
            await watch.next(1)
            forgetful = Forgetful()
            await machines.listen("two", forgetful)
            await watch.next(2)
            forgetful.deaf_on = {1}
            await watch.next(3)
            assert await watch.next(4) - watch.found[2][0] < 0.25
            assert watch.verdicts[2:] == [("Suspected", 2), ("Returned", 2)]

    on_machines(main)


def test_a_machine_that_is_back_is_noticed_too() -> None:
    async def main(machines: Machines) -> None:
        async with watched(machines) as watch:
            machines.network.stall("two")
            await watch.next(1)
            await asyncio.sleep(5.0)
            machines.network.heal()
            healed = now()
            noticed = await watch.next(2)
            assert noticed - healed < 0.05
            assert watch.verdicts == [("Suspected", 2), ("Returned", 2)]
            await asyncio.sleep(5.0)
            assert len(watch.found) == 2

    on_machines(main)


def test_a_connection_that_breaks_is_made_again_and_nobody_is_suspected() -> None:
    async def main(machines: Machines) -> None:
        async with watched(machines) as watch:
            for _ in range(20):
                machines.network.cut("two")
                await asyncio.sleep(0.11)
            assert watch.found == []
            assert watch.beats.liveness.alive == {1, 2, 3}

    on_machines(main)


def test_a_new_process_in_the_place_of_one_that_is_registered_is_not_that_one() -> None:
    async def main(machines: Machines) -> None:
        async with watched(machines) as watch:
            killed = now()
            machines.kill("two")
            await machines.listen("two", HeartbeatCalls(200))
            noticed = await watch.next(1)
            assert noticed - killed < 0.07
            assert watch.verdicts == [("Suspected", 2)]
            watch.registered[2] = 200
            registered = now()
            assert await watch.next(2) - registered < HEARTBEAT_S + 0.05
            assert watch.verdicts[-1] == ("Returned", 2)

    on_machines(main)


def test_a_server_that_is_forgotten_is_asked_no_longer() -> None:
    async def main(machines: Machines) -> None:
        async with watched(machines) as watch:
            watch.beats.forget(2)
            machines.kill("two")
            calls = HeartbeatCalls(100)
            listener = await machines.listen_at("two", calls)
            await asyncio.sleep(5.0)
            assert watch.found == []
            assert listener.statistics().connections == 0
            assert watch.beats.followed == watch.beats.liveness.alive == {1, 3}

    on_machines(main)


def test_our_own_pause_suspects_nobody() -> None:
    async def main(machines: Machines) -> None:
        async with watched(machines) as watch:
            loop = asyncio.get_running_loop()
            loop._now += 30.0  # type: ignore[attr-defined]  # nothing ran for so long
            await asyncio.sleep(5.0)
            assert watch.found == []

    on_machines(main)


@pytest.mark.parametrize("delay_s", [0.1, 0.18])
def test_a_slow_network_suspects_nobody(delay_s: float) -> None:
    """A heartbeat and an answer later than the silence would be another matter."""

    async def main(machines: Machines) -> None:
        async with watched(machines) as watch:
            machines.network.set_delay(delay_s)
            await asyncio.sleep(20.0)
            assert watch.found == []

    on_machines(main)
