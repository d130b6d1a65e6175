"""After a power loss of all: under ``os`` a bucket goes on with what is left once all have answered, and says so."""

from __future__ import annotations

import asyncio

from server.membership.test_coordinators import simulated, started
from server.membership.test_tablets import catalog
from strom.aio.table import Table
from strom.replication.bucket_entry import BucketEntry
from strom.testing.machines import PORT, SimulatedMachines
from waiting import until

OS = {"durability": "os"}
GROUP = {"durability": "group"}


def entry(machines: SimulatedMachines) -> BucketEntry:
    (bucket,) = catalog(machines).replicas
    found = catalog(machines).replicas.get(bucket)
    assert found is not None
    return found


async def written(machines: SimulatedMachines) -> Table:
    """A bucket with three copies; some rows are synced, some a moment old."""
    await started(machines, "c1")
    for server_id in (1, 2, 3):
        await machines.start_tablet(f"t{server_id}", server_id)
    database = await machines.connect("client", f"c1:{PORT}")
    table = await database.create_table("t", {"a": "BIGINT"}, buckets=1)
    await table.append([{"a": number} for number in range(10)])
    await database.flush()
    await asyncio.sleep(3.0)  # what is as old as this is synced
    return table


async def rows(table: Table) -> list[int]:
    found: list[int] = (await table.scan().to_arrow())["a"].to_pylist()
    return sorted(found)


def lose_power(machines: SimulatedMachines) -> None:
    for name in ("t1", "t2", "t3"):
        machines.kill(name, power_loss=True)


def test_when_all_lost_power_the_one_with_most_leads_and_the_loss_is_declared() -> None:
    async def main(machines: SimulatedMachines) -> None:
        table = await written(machines)
        lose_power(machines)
        for server_id in (1, 2, 3):
            await machines.start_tablet(f"t{server_id}", server_id)
        await until(lambda: entry(machines).losses == 1, 10.0)
        assert await rows(table) == list(range(10)), "what was synced is there"

    simulated(main, **OS)


def test_a_member_that_is_not_back_yet_is_waited_for() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await written(machines)
        lose_power(machines)
        for server_id in (1, 2):
            await machines.start_tablet(f"t{server_id}", server_id)
        await asyncio.sleep(10.0)
        assert entry(machines).losses == 0
        await machines.start_tablet("t3", 3)
        await until(lambda: entry(machines).losses == 1, 10.0)

    simulated(main, **OS)


def test_a_bucket_is_looked_at_again_when_the_one_that_led_it_came_back_first() -> None:
    """It was looked at once, when its leader came back, and nobody could be elected yet."""

    async def main(machines: SimulatedMachines) -> None:
        await written(machines)
        lose_power(machines)
        await asyncio.sleep(2.0)
        first = entry(machines).leader  # who was not missed first
        others = sorted({1, 2, 3} - {first})
        await machines.start_tablet(f"t{first}", first)
        await asyncio.sleep(2.0)
        for server_id in others:
            await machines.start_tablet(f"t{server_id}", server_id)
        await until(lambda: entry(machines).losses == 1, 10.0)
        assert entry(machines).epoch > 1

    simulated(main, **OS)


def test_what_was_promised_to_be_on_the_disks_is_there_and_nothing_is_declared() -> None:
    async def main(machines: SimulatedMachines) -> None:
        table = await written(machines)
        await table.append([{"a": 10}])
        await table.flush()
        lose_power(machines)
        for server_id in (1, 2, 3):
            await machines.start_tablet(f"t{server_id}", server_id)
        assert await rows(table) == list(range(11))
        assert entry(machines).losses == 0

    simulated(main, **GROUP)


def test_a_power_loss_of_one_is_no_loss() -> None:
    async def main(machines: SimulatedMachines) -> None:
        table = await written(machines)
        machines.kill("t1", power_loss=True)
        await machines.start_tablet("t1", 1)
        await until(lambda: entry(machines).member_of(1) is not None, 10.0)
        assert await rows(table) == list(range(10))
        found = entry(machines)
        assert found.losses == 0
        assert [one.identity.lineage for one in found.in_sync if one.server_id == 1] == [1]

    simulated(main, **OS)
