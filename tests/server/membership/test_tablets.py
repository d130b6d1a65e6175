"""Tablet servers of a cluster on virtual time: how they come, go and are replaced, and what follows from it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from server.membership.test_coordinators import now, simulated, started
from strom.coordinator.catalog import Catalog, ListenerAddress
from strom.coordinator.coordinator import Coordinator
from strom.errors import Disconnected, InvalidRequest, InvalidSetting, StorageOffline
from strom.model.bucket import BucketId
from strom.protocol.api_keys import DATABASE_EXISTS, LEAVE
from strom.protocol.messages.databases import DatabaseExistsRequest
from strom.protocol.messages.inner import LeaveRequest
from strom.replication.bucket_entry import BucketEntry
from strom.rpc.caller import Caller
from strom.server.folder.checked_json import encode_checked
from strom.server.links.inner_link import InnerLink
from strom.testing.machines import INNER_PORT, PORT, SECRET, SESSION_S, SimulatedMachines
from waiting import until

BUCKETS = 6


def catalog(machines: SimulatedMachines) -> Catalog:
    return Coordinator(machines.store).catalog


def entries(machines: SimulatedMachines) -> list[BucketEntry]:
    rows = catalog(machines).replicas
    return [entry for number in range(BUCKETS) if (entry := rows.get(BucketId(1, None, number))) is not None]


def led(machines: SimulatedMachines) -> dict[int, int]:
    """How many buckets each server leads."""
    found = [entry.leader for entry in entries(machines)]
    return {server_id: found.count(server_id) for server_id in sorted(set(found))}


def epochs(machines: SimulatedMachines) -> int:
    return sum(entry.epoch for entry in entries(machines))


async def cluster(machines: SimulatedMachines, *coordinators: str) -> None:
    """A coordinator and three tablet servers with a table of six buckets."""
    await started(machines, *(coordinators or ("c1",)))
    for server_id in (1, 2, 3):
        await machines.start_tablet(f"t{server_id}", server_id)
    database = await machines.connect("maker", f"c1:{PORT}")
    await database.create_table("t", {"a": "INT"}, buckets=BUCKETS)
    await asyncio.sleep(1.0)
    assert led(machines) == {1: 2, 2: 2, 3: 2}


async def elected(machines: SimulatedMachines, leaders: dict[int, int], within_s: float) -> float:
    """Wait until the buckets are led so; how long that took."""
    began = now()
    await until(lambda: led(machines) == leaders, within_s)
    return now() - began


def test_a_server_is_registered_with_its_process_disk_rack_and_addresses() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1")
        server = await machines.start_tablet("t7", 7, **{"server.rack": "north"})
        found = catalog(machines)
        registration = found.registrations[7]
        assert registration.incarnation == server.incarnation
        assert registration.rack == "north"
        assert [one.lineage for one in registration.disks] == [0]
        assert found.alive == {7: server.incarnation}
        listeners = found.servers[7].listeners
        assert {name: address.host for name, address in listeners.items()} == {"CLIENT": "t7", "INNER": "t7"}

    simulated(main)


def test_a_tablet_server_indexes_its_own_copies_only() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1")
        server = await machines.start_tablet("t7", 7)
        assert server._view is not None
        rows = server._view.catalog.replicas
        assert rows.on(7) == []
        with pytest.raises(AssertionError, match="what it has itself"):
            rows.on(8)

    simulated(main)


def test_the_buckets_of_a_killed_server_are_led_by_others_within_a_moment() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        machines.kill("t1")
        await until(lambda: 1 not in led(machines), 1.0)
        assert await elected(machines, led(machines), 1.0) < 0.3
        for entry in entries(machines):
            assert 1 not in [member.server_id for member in entry.in_sync]
            assert entry.incarnation == catalog(machines).registrations[entry.leader].incarnation

    simulated(main)


def test_how_long_it_takes_until_the_buckets_of_a_dead_server_are_led_by_others() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        killed = now()
        machines.kill("t1")
        await until(lambda: 1 not in led(machines), 2.0)
        assert now() - killed < 0.15
        stalled = now()
        machines.network.stall("t2")
        await until(lambda: 2 not in led(machines), 2.0)
        assert 0.4 <= now() - stalled < 0.8
        assert led(machines) == {3: 6}

    simulated(main)


def test_a_restarted_server_leads_nothing_that_its_former_process_led() -> None:
    """R3: an epoch is led by one process."""

    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        machines.kill("t1")
        server = await machines.start_tablet("t1", 1)
        await asyncio.sleep(2.0)
        found = catalog(machines)
        assert found.registrations[1].incarnation == server.incarnation
        for entry in entries(machines):
            assert entry.incarnation == found.registrations[entry.leader].incarnation

    simulated(main)


def test_when_nobody_can_lead_the_entry_stays_until_somebody_returns() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        for name in ("t1", "t2", "t3"):
            machines.kill(name)
        await asyncio.sleep(10.0)
        before = entries(machines)
        server = await machines.start_tablet("t2", 2)
        await asyncio.sleep(1.0)
        for then, entry in zip(before, entries(machines), strict=True):
            if then.member_of(2) is not None:
                assert (entry.leader, entry.incarnation) == (2, server.incarnation)
                assert entry.epoch > then.epoch
            else:
                assert entry == then, "only a copy that was in sync may lead"
        for name, server_id in (("t1", 1), ("t3", 3)):
            await machines.start_tablet(name, server_id)
        await asyncio.sleep(1.0)
        alive = catalog(machines).alive
        assert all(alive[entry.leader] == entry.incarnation for entry in entries(machines))

    simulated(main)


def test_a_new_active_coordinator_elects_for_those_that_died_before_it_took_over() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines, "c1", "c2")
        machines.kill("c1")
        machines.kill("t1")
        killed = now()
        await until(lambda: 1 not in led(machines), 3.0)
        assert now() - killed < 0.5

    simulated(main)


def test_a_coordinator_that_starts_finds_servers_that_were_restarted_meanwhile() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        machines.kill("c1")
        machines.kill("t1")
        server = await machines.start_tablet("t1", 1)
        await machines.start_coordinator("c1")
        await until(lambda: all(entry.epoch == 2 for entry in entries(machines) if entry.leader == 1), 8.0)
        assert all(
            entry.incarnation == server.incarnation for entry in entries(machines) if entry.leader == 1
        )
        assert 1 in led(machines), "it is preferred, and its copy is what it was"

    simulated(main)


def test_a_server_that_is_cut_off_from_the_coordinator_alone_loses_its_buckets_and_hears_of_it() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        machines.network.stall("c1", "t1")
        await until(lambda: 1 not in led(machines), 2.0)
        machines.network.heal()
        await asyncio.sleep(2.0)
        assert machines["t1"].alive
        assert 1 not in led(machines), "a server that is back takes no leadership by itself"

    simulated(main)


# --- one number, one server -----------------------------------------------------------------------------------------


def test_a_second_server_of_the_same_number_is_refused_while_the_first_is_there() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        before = catalog(machines).registrations[1]
        with pytest.raises(InvalidSetting, match="tablet server 1 runs already, at t1:9300"):
            await machines.start_tablet("elsewhere", 1)
        assert catalog(machines).registrations[1] == before

    simulated(main)


def test_a_restart_right_after_a_kill_does_not_wait_for_the_announcement_of_the_former_process() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        machines.kill("t1")
        began = now()
        await machines.start_tablet("t1", 1)
        assert now() - began < 0.5

    simulated(main)


def test_one_that_does_not_answer_is_waited_for_until_it_is_not_announced_any_more() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        store = machines["t1"].store
        assert store is not None
        machines.network.stall("t1")
        store.cut()
        began = now()
        second = await machines.start_tablet("elsewhere", 1)
        assert SESSION_S <= now() - began < SESSION_S + 2.0
        machines.network.heal()
        store.heal()
        first = machines["t1"].server
        assert first is not None
        await until(lambda: first.over.is_set(), 5.0)
        assert catalog(machines).registrations[1].incarnation == second.incarnation

    simulated(main)


# --- contact to the metadata ------------------------------------------------------------------------------------------


def test_without_contact_to_the_metadata_a_server_closes_the_connections_of_its_clients() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        caller = await Caller.connect(machines.client_world("client"), "t1", PORT)
        store = machines["t1"].store
        assert store is not None
        cut = now()
        store.cut()
        await asyncio.sleep(5.5)
        assert (await caller.call(DATABASE_EXISTS, DatabaseExistsRequest(database_name="fluss"))).exists
        await until(lambda: caller.closed, 5.0)
        assert 6.0 <= now() - cut <= 7.5
        with pytest.raises(Disconnected):
            await Caller.connect(machines.client_world("another"), "t1", PORT)
        store.heal()
        await asyncio.sleep(0.5)
        again = await Caller.connect(machines.client_world("third"), "t1", PORT)
        assert (await again.call(DATABASE_EXISTS, DatabaseExistsRequest(database_name="fluss"))).exists

    simulated(main)


# --- stopping ---------------------------------------------------------------------------------------------------------


def test_a_server_that_stops_in_order_gives_its_buckets_away_first() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        caller = await Caller.connect(machines.client_world("client"), "t1", PORT)
        open_then: list[bool] = []
        machines.store.watch(
            lambda version: open_then.append(not caller.closed) if 1 not in led(machines) else None
        )
        assert await machines.stop("t1")
        assert open_then[0], "others lead before it lets go of its clients"
        assert caller.closed
        assert 1 not in catalog(machines).alive
        await until(lambda: all(entry.member_of(1) is None for entry in entries(machines)), 0.5)

    simulated(main)


def test_a_server_stops_also_when_no_coordinator_is_there() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        machines.kill("c1")
        began = now()
        assert await machines.stop("t1")
        assert now() - began < 12.0

    simulated(main)


async def leave(machines: SimulatedMachines, server_id: int, incarnation: int) -> int:
    """What a server asks for before it stops."""
    world = machines.client_world("leaver")
    link = InnerLink(world, SECRET, "the coordinator", ListenerAddress("c1", INNER_PORT))
    try:
        return (await link.call(LEAVE, LeaveRequest(server_id=server_id, incarnation=incarnation))).led
    finally:
        link.close()


def test_a_server_that_is_about_to_stop_gets_no_leadership() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        assert await leave(machines, 1, catalog(machines).alive[1]) == 0
        machines.kill("t2")
        await elected(machines, {3: 6}, 1.0)

    simulated(main)


def test_a_server_that_left_leads_again_when_it_is_started_again() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        database = await machines.connect("another", f"c1:{PORT}")
        single = {"table.replication.factor": "1"}
        await database.create_table("alone", {"a": "INT"}, buckets=3, properties=single)
        assert await leave(machines, 1, catalog(machines).alive[1]) == 1
        machines.kill("t1")
        server = await machines.start_tablet("t1", 1)
        await asyncio.sleep(1.0)
        rows = catalog(machines).replicas
        (mine,) = [one for one in rows.led_by(1) if one.table_id == 2]
        entry = rows.get(mine)
        assert entry is not None
        assert (entry.incarnation, entry.epoch) == (server.incarnation, 2)

    simulated(main)


def test_only_the_process_that_is_registered_may_leave() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        with pytest.raises(InvalidRequest, match="not the tablet server 1 that is registered"):
            await leave(machines, 1, 12345)
        assert led(machines) == {1: 2, 2: 2, 3: 2}

    simulated(main)


def test_a_server_that_nobody_can_stand_in_for_is_told_so() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        machines.kill("t2")
        machines.kill("t3")
        await elected(machines, {1: 6}, 1.0)
        assert await leave(machines, 1, catalog(machines).alive[1]) == 6

    simulated(main)


# --- disks -----------------------------------------------------------------------------------------------------------


def disks(machines: SimulatedMachines, server_id: int) -> list[tuple[str, int]]:
    return [tuple(one) for one in catalog(machines).registrations[server_id].disks]


def test_the_lineage_of_a_disk_rises_when_its_machine_loses_power_and_not_otherwise() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        ((disk, lineage),) = disks(machines, 1)
        machines.kill("t1")
        await machines.start_tablet("t1", 1)
        assert disks(machines, 1) == [(disk, lineage)]
        machines.kill("t1", power_loss=True)
        await machines.start_tablet("t1", 1)
        assert disks(machines, 1) == [(disk, lineage + 1)]
        assert await machines.stop("t1")
        machines.kill("t1", power_loss=True)
        await machines.start_tablet("t1", 1)
        assert disks(machines, 1) == [(disk, lineage + 1)]

    simulated(main)


def test_several_data_folders_are_several_disks_and_one_that_fails_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1")
        await machines.start_tablet("t1", 1, **{"data.dirs": "/a,/b,/c"})
        first = disks(machines, 1)
        assert len({disk for disk, _ in first}) == 3
        await machines.stop("t1")
        machines["t1"].disk.write_whole("/b/strom.json", b"damaged")
        await machines.start_tablet("t1", 1, **{"data.dirs": "/a,/b,/c"})
        assert disks(machines, 1) == [first[0], first[2]]
        assert "the data folder /b is left out" in caplog.text
        await machines.stop("t1")
        for name in ("/a", "/c"):
            machines["t1"].disk.write_whole(f"{name}/strom.json", b"damaged")
        with pytest.raises(StorageOffline, match="none of the data folders"):
            await machines.start_tablet("t1", 1, **{"data.dirs": "/a,/b,/c"})

    caplog.set_level(logging.ERROR)
    simulated(main)


def test_a_disk_that_a_server_went_on_without_comes_back_as_another_disk() -> None:
    """R24: whatever became of the copies on it meanwhile, they are not the ones that were in sync."""

    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1")
        for folders in ("/a,/b", "/a"):
            await machines.start_tablet("t1", 1, **{"data.dirs": folders})
            first, *others = disks(machines, 1)
            if others:
                (second,) = others
            await machines.stop("t1")
        await machines.start_tablet("t1", 1, **{"data.dirs": "/a,/b"})
        assert disks(machines, 1)[0] == first
        assert disks(machines, 1)[1] != second

    simulated(main)


def test_a_folder_of_another_cluster_is_refused() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1")
        await machines.start_tablet("t1", 1)
        await machines.stop("t1")
        machines["t1"].disk.write_whole(
            "/data/tablet-1/strom.json", encode_checked({"format": 1, "cluster_id": "another"})
        )
        with pytest.raises(InvalidSetting, match="belongs to another cluster"):
            await machines.start_tablet("t1", 1)

    simulated(main)


def test_a_server_without_a_number_is_refused() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1")
        with pytest.raises(InvalidSetting, match=r"server\.id is not set"):
            await machines.start_tablet("t1", -1)

    simulated(main)
