"""Where copies are and where a person wants them, through the client, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from server.membership.test_coordinators import simulated
from server.membership.test_tablets import cluster
from strom.errors import InvalidRequest
from strom.testing.machines import PORT, SimulatedMachines
from waiting import until


def test_a_copy_moves_to_a_server_that_joined_and_no_row_is_lost() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines, "c1", "c2")
        await machines.start_tablet("t4", 4)
        database = await machines.connect("mover", f"c2:{PORT}")
        table = await database.table("t")
        await table.append([{"a": number} for number in range(60)])
        await database.flush()
        await asyncio.sleep(1.0)
        first = (await database.bucket_copies("t"))[0]
        assert sorted(first.servers) == sorted(first.in_sync) == [1, 2, 3]
        others = [one for one in first.wanted if one != first.leader]
        begun = await database.move_bucket("t", 0, to=[4, *others])
        assert begun.wanted == (4, *others)
        assert begun.moving

        async def there() -> bool:
            now = (await database.bucket_copies("t"))[0]
            return (
                sorted(now.servers) == sorted(now.in_sync) == sorted([4, *others]) and now.leader is not None
            )

        await until(there, 30.0)
        led = await database.move_bucket("t", 0, leader=4)
        assert (led.leader, led.wanted[0], led.lacks) == (4, 4, "")
        assert sorted((await table.scan().to_arrow())["a"].to_pylist()) == list(range(60))

    simulated(main)


def test_what_a_dead_server_leaves_behind_is_told() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        database = await machines.connect("looker", f"c1:{PORT}")
        assert [one.lacks for one in await database.bucket_copies()] == [""] * 6
        machines.kill("t3")
        await asyncio.sleep(2.0)
        assert {one.lacks for one in await database.bucket_copies("t")} == {"not in sync: 3"}
        machines.kill("t2")
        await asyncio.sleep(2.0)
        assert {one.lacks for one in await database.bucket_copies("t")} == {
            "too few copies in sync to be written to"
        }

    simulated(main)


def test_what_cannot_be_is_refused_and_says_what_to_change() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        database = await machines.connect("mover", f"c1:{PORT}")
        with pytest.raises(InvalidRequest, match="name servers of the cluster"):
            await database.move_bucket("t", 0, to=[1, 2, 9])
        with pytest.raises(InvalidRequest, match="2 must be in sync"):
            await database.move_bucket("t", 0, to=[1])
        with pytest.raises(InvalidRequest, match="move a copy there first"):
            await database.move_bucket("t", 0, leader=9)
        asked = asyncio.get_running_loop().time()
        for number in (6, -1):
            with pytest.raises(InvalidRequest, match=f"fluss.t has no bucket {number}: it has 6, from 0 on"):
                await database.move_bucket("t", number, leader=1)
        assert asyncio.get_running_loop().time() - asked < 1.0, "nobody waits for a bucket that cannot be"
        machines.kill("t3")
        await asyncio.sleep(2.0)
        with pytest.raises(InvalidRequest, match=r"cannot lead fluss\.t bucket 0 now"):
            await database.move_bucket("t", 0, leader=3)

    simulated(main)
