"""A leader that the coordinator hears as ever, and that is cut off from those that follow it: others lead instead."""

from __future__ import annotations

import asyncio

from server.membership.test_coordinators import now, simulated
from server.membership.test_tablets import cluster, epochs, led
from strom.testing.machines import PORT, SimulatedMachines
from waiting import until

NOTICED_S = 8.0
"""The longest wait of a pull, the time that a copy in sync may be behind, and a look."""


def stall(machines: SimulatedMachines, name: str, *others: str) -> None:
    for other in others:
        machines.network.stall(name, other)
        machines.network.stall(other, name)


def test_writes_go_on_though_a_leader_is_cut_off_from_its_followers() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        database = await machines.connect("writer", f"c1:{PORT}")
        table = await database.table("t")
        await table.append([{"a": 0}])
        await database.flush()
        stall(machines, "t1", "t2", "t3")
        began = now()
        numbers = range(1, 300)
        for number in numbers:
            await table.append([{"a": number}])
            await asyncio.sleep(0.01)
        await database.flush()
        assert now() - began < 2 * NOTICED_S
        assert led(machines).keys() == {2, 3}
        machines.network.heal()
        found = await table.scan().to_arrow()
        assert sorted(found["a"].to_pylist()) == [0, *numbers]

    simulated(main)


def test_a_partition_between_all_servers_moves_nothing() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        before = epochs(machines)
        stall(machines, "t1", "t2", "t3")
        stall(machines, "t2", "t3")
        await asyncio.sleep(4 * NOTICED_S)
        assert epochs(machines) == before
        machines.network.heal()

    simulated(main)


def test_who_is_missed_by_one_follower_goes_on_leading() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        before = led(machines)
        stall(machines, "t1", "t2")
        await asyncio.sleep(3 * NOTICED_S)
        assert led(machines) == before
        machines.network.heal()
        await until(lambda: led(machines) == before, 5.0)

    simulated(main)
