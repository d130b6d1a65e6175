"""Several coordinators on virtual time: one is active, another takes over, and what a former one does is void."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from strom.coordinator.coordinator import Coordinator
from strom.errors import Disconnected, LeaderNotAvailable, StromError
from strom.protocol.api_keys import CREATE_DATABASE, DATABASE_EXISTS
from strom.protocol.messages.databases import CreateDatabaseRequest, DatabaseExistsRequest
from strom.rpc.caller import Caller
from strom.server.process.cluster_coordinator import ClusterCoordinator
from strom.testing import loop as virtual
from strom.testing.machines import PORT, SESSION_S, SimulatedMachines
from strom.testing.random import SeededRandomness
from waiting import until


def simulated(main: Callable[[SimulatedMachines], Coroutine[Any, Any, None]], **settings: str) -> None:
    async def whole() -> None:
        machines = SimulatedMachines(SeededRandomness(3), settings=settings)
        try:
            await main(machines)
        finally:
            await machines.close()

    virtual.run(whole())


def now() -> float:
    return asyncio.get_running_loop().time()


async def started(machines: SimulatedMachines, *names: str) -> list[ClusterCoordinator]:
    """Coordinators, one after the other; the first is the active one."""
    servers = []
    for name in names:
        servers.append(await machines.start_coordinator(name))
        await until(lambda: servers[0].active, 5.0)
    await asyncio.sleep(1.0)
    assert [one.active for one in servers] == [True] + [False] * (len(names) - 1)
    return servers


async def calling(machines: SimulatedMachines, host: str) -> Caller:
    """A client that calls this one and no other."""
    return await Caller.connect(machines.client_world("client"), host, PORT)


async def create(caller: Caller, name: str, timeout_s: float = 30.0) -> None:
    request = CreateDatabaseRequest(database_name=name, ignore_if_exists=False)
    await caller.call(CREATE_DATABASE, request, timeout_s=timeout_s)


async def exists(caller: Caller, name: str) -> bool:
    return (await caller.call(DATABASE_EXISTS, DatabaseExistsRequest(database_name=name))).exists


def databases(machines: SimulatedMachines) -> list[str]:
    return Coordinator(machines.store).catalog.databases()


def active(machines: SimulatedMachines) -> str:
    """The host that the metadata name as the active coordinator's."""
    found = Coordinator(machines.store).catalog.active
    assert found is not None
    return found.listeners["CLIENT"].host


def test_the_first_is_active_and_the_others_answer_all_calls() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1", "c2", "c3")
        assert active(machines) == "c1"
        for number, host in enumerate(["c1", "c2", "c3"]):
            caller = await calling(machines, host)
            await create(caller, f"db{number}")
            assert await exists(caller, f"db{number}")
        assert databases(machines) == ["db0", "db1", "db2", "fluss"]

    simulated(main)


def test_an_error_of_the_active_one_is_the_answer_of_the_others_too() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1", "c2")
        caller = await calling(machines, "c2")
        await create(caller, "twice")
        with pytest.raises(StromError, match="already exists"):
            await create(caller, "twice")

    simulated(main)


def test_when_the_active_one_is_killed_another_takes_over_within_a_moment() -> None:
    async def main(machines: SimulatedMachines) -> None:
        _, second = await started(machines, "c1", "c2")
        caller = await calling(machines, "c2")
        killed = now()
        machines.kill("c1")
        await create(caller, "meanwhile")
        assert second.active
        assert now() - killed < 0.3
        assert active(machines) == "c2"

    simulated(main)


def test_a_silent_one_is_replaced_and_stands_by_when_it_is_back() -> None:
    async def main(machines: SimulatedMachines) -> None:
        first, second = await started(machines, "c1", "c2")
        stalled = now()
        machines.network.stall("c1")
        await until(lambda: second.active, 10.0)
        assert 1.0 <= now() - stalled < 1.5
        await until(lambda: not first.active, 1.0)
        machines.network.heal()
        await asyncio.sleep(5.0)
        assert (first.active, second.active) == (False, True), "it does not take its place back"
        caller = await calling(machines, "c1")
        await create(caller, "by_way_of_the_first")

    simulated(main)


def test_one_that_was_deposed_and_has_not_heard_of_it_changes_nothing() -> None:
    """It does not reach the metadata; the others do not reach it."""

    async def main(machines: SimulatedMachines) -> None:
        first, second = await started(machines, "c1", "c2")
        store = machines["c1"].store
        assert store is not None
        store.cut()
        machines.network.stall("c1", "c2")
        await until(lambda: second.active, 10.0)
        assert first.active, "it has not heard of it"
        caller = await calling(machines, "c1")
        with pytest.raises((Disconnected, LeaderNotAvailable)):
            await create(caller, "of_the_former")
        assert databases(machines) == ["fluss"]
        await until(lambda: not first.active, 10.0)

    simulated(main)


def test_without_contact_to_the_metadata_the_active_one_steps_back_and_another_takes_over() -> None:
    async def main(machines: SimulatedMachines) -> None:
        first, second = await started(machines, "c1", "c2")
        store = machines["c1"].store
        assert store is not None
        cut = now()
        store.cut()
        await until(lambda: not first.active, 10.0)
        assert SESSION_S - 0.1 <= now() - cut <= SESSION_S + 0.3
        await until(lambda: second.active, 1.0)
        store.heal()
        await asyncio.sleep(3.0)
        assert (first.active, second.active) == (False, True)

    simulated(main)


def test_one_that_loses_contact_alone_goes_on_in_the_same_term_when_it_is_back() -> None:
    async def main(machines: SimulatedMachines) -> None:
        (first,) = await started(machines, "c1")
        store = machines["c1"].store
        assert store is not None
        store.cut()
        await until(lambda: not first.active, 10.0)
        store.heal()
        await until(lambda: first.active, 1.0)
        found = Coordinator(machines.store).catalog.active
        assert found is not None
        assert found.number == 1

    simulated(main)


def test_one_that_stops_in_order_makes_room_at_once() -> None:
    async def main(machines: SimulatedMachines) -> None:
        _, second = await started(machines, "c1", "c2")
        caller = await calling(machines, "c2")
        creating = asyncio.ensure_future(create(caller, "meanwhile"))
        stopped = now()
        stopping = asyncio.ensure_future(machines.stop("c1"))
        await until(lambda: second.active, 1.0)
        assert now() - stopped < 0.1
        await creating
        assert await stopping
        catalog = Coordinator(machines.store).catalog
        assert [one.listeners["CLIENT"].host for one in catalog.coordinators.values()] == ["c2"]

    simulated(main)


def test_a_client_goes_on_over_changes_of_the_active_one() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1", "c2", "c3")
        database = await machines.connect("client", f"c2:{PORT},c3:{PORT}")
        for round_ in range(3):
            machines.kill(active(machines))
            await database.create_database(f"round{round_}")
            await machines.start_coordinator(
                next(one for one in ("c1", "c2", "c3") if not machines[one].alive)
            )
        assert databases(machines) == ["fluss", "round0", "round1", "round2"]

    simulated(main)


def test_while_nobody_is_active_a_call_waits_and_then_may_be_tried_again() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1", "c2")
        caller = await calling(machines, "c2")
        store = machines["c2"].store
        assert store is not None
        machines.kill("c1")
        store.cut()
        asked = now()
        with pytest.raises(LeaderNotAvailable, match="no coordinator is active right now"):
            await create(caller, "in_vain")
        assert 4.9 <= now() - asked <= 6.5

    simulated(main)
