"""Rebalances, servers that leave, elections: through the client, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from server.membership.test_coordinators import simulated, started
from server.membership.test_tablets import BUCKETS, catalog, cluster, elected, entries, epochs, led
from strom.aio.database import Database
from strom.errors import InvalidConfig, InvalidRequest, NoRebalance, RebalanceRunning
from strom.testing.machines import PORT, SimulatedMachines
from waiting import until

STILL = {"leader.return.interval": "0"}
"""Leaders stay where they are."""
ROWS = 200 * BUCKETS


def copies_on(machines: SimulatedMachines, server_id: int) -> int:
    return catalog(machines).replicas.copy_count(server_id)


def state(machines: SimulatedMachines) -> str:
    record = catalog(machines).operations.rebalance
    return "none" if record is None else record.state


async def filled(database: Database) -> None:
    """A batch in every bucket: a writer goes on to the next one when another batch would be too much."""
    async with (await database.table("t")).writer(batch_bytes=1024) as writer:
        for first in range(0, ROWS, ROWS // BUCKETS):
            await writer.append([{"a": number} for number in range(first, first + ROWS // BUCKETS)])


async def fourth(machines: SimulatedMachines, *coordinators: str) -> Database:
    """A cluster with rows and a fourth server that has nothing."""
    await cluster(machines, *coordinators)
    database = await machines.connect("operator", f"c1:{PORT}")
    await filled(database)
    await machines.start_tablet("t4", 4)
    await asyncio.sleep(1.0)
    return database


async def rows(database: Database) -> list[int]:
    found: list[int] = (await (await database.table("t")).scan().to_arrow())["a"].to_pylist()
    return sorted(found)


def test_a_rebalance_shows_its_plan_and_then_gives_a_new_server_its_share() -> None:
    async def main(machines: SimulatedMachines) -> None:
        database = await fourth(machines)
        plan = await database.plan_rebalance()
        (share,) = [one for one in plan.servers if one.server == 4]
        assert (share.copies_before, share.leaders_before) == (0, 0)
        assert share.copies_after in (4, 5)
        assert share.bytes_in > 0
        assert share.bytes_in == plan.bytes == sum(one.bytes for one in plan.moves)
        assert all(one.bytes > 0 for one in plan.moves if 4 in one.after)
        assert copies_on(machines, 4) == 0
        assert not any(4 in one.wanted for one in entries(machines)), "nothing moves before it is asked for"
        begun = await database.rebalance(plan)
        assert (begun.id, begun.state) == (plan.id, "running")
        await until(lambda: state(machines) == "done", 30.0)
        assert copies_on(machines, 4) == share.copies_after
        assert led(machines)[4] == share.leaders_after
        assert all(len(one.servers) == 3 and not one.moving for one in entries(machines))
        found = await database.rebalance_status()
        assert found is not None
        assert (found.done, found.waiting, found.moving, found.bytes_left) == (plan.count, 0, 0, 0)
        assert (await database.plan_rebalance()).count == 0
        assert await rows(database) == list(range(ROWS))

    simulated(main, **STILL)


def test_another_coordinator_goes_on_with_a_rebalance() -> None:
    async def main(machines: SimulatedMachines) -> None:
        database = await fourth(machines, "c1", "c2")
        await database.rebalance()
        machines.kill("c1")
        assert state(machines) == "running"
        await until(lambda: state(machines) == "done", 30.0)
        assert copies_on(machines, 4) in (4, 5)

    simulated(main, **STILL)


def test_no_server_makes_more_copies_at_once_than_it_may() -> None:
    async def main(machines: SimulatedMachines) -> None:
        database = await fourth(machines)
        machines.kill("t4")  # so that no copy gets done
        await machines.start_tablet("t4", 4)
        for one in ("t1", "t2", "t3"):
            machines.network.stall("t4", one)
        await database.rebalance()
        await asyncio.sleep(5.0)
        assert copies_on(machines, 4) <= 1, "one at a time, and it cannot get what it needs"
        found = await database.rebalance_status()
        assert found is not None
        assert found.state == "running"
        assert found.waiting >= 2
        with pytest.raises(RebalanceRunning):
            await database.rebalance()

    simulated(main, **{"replica.moves.max": "1"}, **STILL)


def test_moves_by_hand_wait_for_their_turn_too() -> None:
    async def main(machines: SimulatedMachines) -> None:
        database = await fourth(machines)
        for one in ("t1", "t2", "t3"):
            machines.network.stall("t4", one)
        for number, entry in enumerate(entries(machines)):
            await database.move_bucket("t", number, to=[*entry.wanted[:2], 4])
        await asyncio.sleep(3.0)
        assert copies_on(machines, 4) == 2
        machines.network.heal()
        await until(lambda: copies_on(machines, 4) == BUCKETS, 30.0)
        await until(lambda: not any(one.moving for one in entries(machines)), 30.0)
        assert await rows(database) == list(range(ROWS))

    simulated(main, **{"replica.moves.max": "2"}, **STILL)


def test_a_cancelled_rebalance_takes_back_what_is_under_way() -> None:
    async def main(machines: SimulatedMachines) -> None:
        database = await fourth(machines)
        before = [one.wanted for one in entries(machines)]
        for one in ("t1", "t2", "t3"):
            machines.network.stall("t4", one)
        await database.rebalance()
        await until(lambda: copies_on(machines, 4) > 0, 10.0)
        await database.cancel_rebalance()
        await until(lambda: state(machines) == "cancelled", 30.0)
        machines.network.heal()
        await until(lambda: not any(one.moving for one in entries(machines)), 30.0)
        assert [one.wanted for one in entries(machines)] == before
        assert copies_on(machines, 4) == 0
        with pytest.raises(NoRebalance):
            await database.cancel_rebalance()
        assert await rows(database) == list(range(ROWS))

    simulated(main, **STILL)


def test_only_leaders_move_when_nothing_else_shall() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        database = await machines.connect("operator", f"c1:{PORT}")
        for number in range(BUCKETS):
            await database.move_bucket("t", number, leader=1)
        assert led(machines) == {1: 6}
        plan = await database.plan_rebalance(leaders_only=True)
        assert plan.bytes == 0
        assert all(sorted(one.before) == sorted(one.after) for one in plan.moves)
        await database.rebalance(plan)
        await elected(machines, {1: 2, 2: 2, 3: 2}, 10.0)
        await until(lambda: state(machines) == "done", 10.0)

    simulated(main, **STILL)


def test_a_server_leaves_with_everything_and_gets_nothing_new() -> None:
    async def main(machines: SimulatedMachines) -> None:
        database = await fourth(machines)
        await database.decommission(2)
        await database.create_table("later", {"a": "INT"}, buckets=8)
        await until(lambda: state(machines) == "done", 30.0)
        assert copies_on(machines, 2) == 0
        assert await machines.stop("t2")
        assert all(sorted(one.servers) == [1, 3, 4] for one in entries(machines))
        assert await rows(database) == list(range(ROWS))
        with pytest.raises(InvalidConfig, match="3 tablet servers beside 1 that leave it"):
            await database.create_table("wide", {"a": "INT"}, properties={"table.replication.factor": "4"})
        with pytest.raises(InvalidRequest, match="server 2 leaves"):
            await database.move_bucket("t", 0, to=[1, 2, 3])

    simulated(main, **STILL)


def test_a_server_cannot_leave_when_its_copies_have_nowhere_to_go() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        database = await machines.connect("operator", f"c1:{PORT}")
        with pytest.raises(
            InvalidRequest, match=r"only 2 of the servers that answer would stay\. Start another"
        ):
            await database.decommission(3)
        assert catalog(machines).operations.tags == {}

    simulated(main, **STILL)


def test_a_server_that_leaves_does_not_cost_a_rack_unless_somebody_allows_it() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1")
        for server_id, rack in ((1, "a"), (2, "b"), (3, "c"), (4, "c")):
            await machines.start_tablet(f"t{server_id}", server_id, **{"server.rack": rack})
        database = await machines.connect("operator", f"c1:{PORT}")
        await database.create_table("t", {"a": "INT"}, buckets=BUCKETS)
        with pytest.raises(
            InvalidRequest, match=r"6 buckets would stand in fewer racks.*Start a server in rack a"
        ):
            await database.decommission(1)
        assert catalog(machines).operations.tags == {}
        await database.decommission(1, fewer_racks=True)
        await until(lambda: state(machines) == "done", 30.0)
        assert copies_on(machines, 1) == 0

    simulated(main, **STILL)


def test_buckets_that_come_to_a_server_while_it_leaves_go_as_well() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1")
        for server_id in (1, 2, 3, 4):
            await machines.start_tablet(f"t{server_id}", server_id)
        database = await machines.connect("operator", f"c1:{PORT}")
        plan = await database.plan_decommission(2)
        assert plan.count == 0
        await database.create_table("t", {"a": "INT"}, buckets=BUCKETS)
        assert copies_on(machines, 2) > 0
        await database.decommission(2, plan)
        await until(lambda: state(machines) == "done", 30.0)
        assert copies_on(machines, 2) == 0

    simulated(main, **STILL)


def test_a_server_stays_after_all() -> None:
    async def main(machines: SimulatedMachines) -> None:
        database = await fourth(machines)
        for one in ("t1", "t2", "t3"):
            machines.network.stall("t4", one)
        await database.decommission(2)
        await until(lambda: copies_on(machines, 4) > 0, 10.0)
        await database.cancel_decommission(2)
        await until(lambda: state(machines) == "cancelled", 30.0)
        machines.network.heal()
        await until(lambda: not any(one.moving for one in entries(machines)), 30.0)
        assert catalog(machines).operations.tags == {}
        assert copies_on(machines, 2) == BUCKETS

    simulated(main, **STILL)


def test_a_leader_is_not_moved_to_a_server_that_stops() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        database = await machines.connect("operator", f"c1:{PORT}")
        stopping = asyncio.ensure_future(machines.stop("t3"))
        await elected(machines, {1: 3, 2: 3}, 5.0)
        before = epochs(machines)
        with pytest.raises(InvalidRequest, match="about to stop"):
            await database.move_bucket("t", 0, leader=3)
        assert epochs(machines) == before
        await stopping

    simulated(main, **STILL)


def test_leaders_go_back_by_themselves_after_a_restart_and_not_before_the_server_is_steady() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        machines.kill("t3")
        await asyncio.sleep(2.0)
        assert 3 not in led(machines)
        await machines.start_tablet("t3", 3)
        await until(lambda: all(one.member_of(3) for one in entries(machines)), 20.0)
        assert 3 not in led(machines)
        assert await elected(machines, {1: 2, 2: 2, 3: 2}, 60.0) > 1.0

    simulated(main, **{"leader.return.interval": "20 s"})


def test_a_server_that_comes_and_goes_gets_no_leaders_back() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        for _ in range(4):
            machines.kill("t3")
            await asyncio.sleep(2.0)
            await machines.start_tablet("t3", 3)
            await asyncio.sleep(12.0)
            assert 3 not in led(machines)

    simulated(main, **{"leader.return.interval": "15 s"})


def test_preferred_leaders_lead_when_somebody_asks() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        machines.kill("t3")
        await asyncio.sleep(2.0)
        await machines.start_tablet("t3", 3)
        await until(lambda: all(one.member_of(3) for one in entries(machines)), 20.0)
        database = await machines.connect("operator", f"c1:{PORT}")
        first = next(number for number, one in enumerate(entries(machines)) if one.wanted[0] == 3)
        (found,) = await database.elect("t", first)
        assert found.leader == 3
        assert len(await database.elect("t")) == BUCKETS
        assert led(machines) == {1: 2, 2: 2, 3: 2}

    simulated(main, **STILL)
