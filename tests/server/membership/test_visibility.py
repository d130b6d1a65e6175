"""What a cluster on virtual time tells those who run it, while servers, coordinators and links really fail."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from server.membership.test_coordinators import simulated, started
from server.membership.test_tablets import BUCKETS, cluster, led
from strom.server.process.cluster_coordinator import ClusterCoordinator
from strom.server.process.cluster_tablet import ClusterTablet
from strom.testing.machines import PORT, SimulatedMachines
from waiting import until

CLUSTER_GAUGES = "strom_cluster_"


async def health(machines: SimulatedMachines, name: str) -> tuple[int, dict[str, Any]]:
    answer = await _server(machines, name).site.respond("/health")
    return answer.status, json.loads(answer.body)


async def concerns(machines: SimulatedMachines, name: str = "c1") -> dict[str, str]:
    """What is wrong, by kind, as ``strom doctor`` is told it."""
    found = await _server(machines, name).site.describe()
    return {one["kind"]: one["what"] for one in found["cluster"]["concerns"]}


async def gauges(machines: SimulatedMachines, name: str, prefix: str) -> dict[str, float]:
    """The metrics of a process, without labels."""
    answer = await _server(machines, name).site.respond("/metrics")
    lines = [line for line in answer.body.splitlines() if line.startswith(prefix)]
    return {line.split("{")[0].split()[0]: float(line.split()[-1]) for line in lines}


def _server(machines: SimulatedMachines, name: str) -> ClusterCoordinator | ClusterTablet:
    server = machines[name].server
    assert server is not None
    return server


def test_servers_that_die_one_after_the_other_are_told_by_what_still_works() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines, "c1", "c2")
        for name, role in (
            ("c1", "active coordinator"),
            ("c2", "coordinator that stands by"),
            ("t1", "tablet server 1"),
        ):
            code, found = await health(machines, name)
            assert (code, found["status"], found["role"]) == (200, "healthy", role), found
        fine = await gauges(machines, "c1", CLUSTER_GAUGES)
        assert fine.pop("strom_cluster_active") == 1
        assert fine.pop("strom_cluster_servers") == 3
        assert fine.pop("strom_cluster_coordinators") == 2
        assert fine.pop("strom_cluster_buckets") == BUCKETS
        assert fine.pop("strom_cluster_leaders_uneven") == fine.pop("strom_cluster_copies_uneven") == 1
        assert set(fine.values()) == {0}
        assert await gauges(machines, "c2", CLUSTER_GAUGES) == {"strom_cluster_active": 0}, "counted once"

        machines.kill("t1")
        await until(lambda: 1 not in led(machines), 10.0)
        await asyncio.sleep(5.0)
        for coordinator in ("c1", "c2"):
            code, found = await health(machines, coordinator)
            assert (code, found["status"], found["problems"]) == (200, "degraded", [])
            told = await concerns(machines, coordinator)
            assert "tablet server 1 (t1:9123) does not answer since 5" in told["server_gone"]
            assert told["under_replicated"].startswith("6 buckets")
            assert "tablet server 1 is behind" in told["lagging"]
        lacking = await gauges(machines, "c1", CLUSTER_GAUGES)
        assert lacking["strom_cluster_servers_gone"] == 1
        assert lacking["strom_cluster_buckets_under_replicated"] == BUCKETS
        assert lacking["strom_cluster_buckets_under_min_insync"] == 0

        machines.kill("t2")
        await until(lambda: set(led(machines)) == {3}, 10.0)
        code, found = await health(machines, "c1")
        assert (code, found["status"]) == (503, "unhealthy")
        assert any("writes with acks=all are refused" in one for one in found["problems"])
        assert (await gauges(machines, "t3", "strom_buckets_under_min"))[
            "strom_buckets_under_min_insync"
        ] == 0, "its in-sync set does not shrink below table.min.insync"
        machines.kill("t3")
        await asyncio.sleep(2.0)
        assert (await concerns(machines))["without_leader"].startswith("6 buckets without a leader")
        assert (await gauges(machines, "c1", CLUSTER_GAUGES))[
            "strom_cluster_buckets_without_leader"
        ] == BUCKETS

        for server_id in (1, 2, 3):
            await machines.start_tablet(f"t{server_id}", server_id)
        await asyncio.sleep(15.0)
        code, found = await health(machines, "c1")
        assert code == 200, found
        assert "under_replicated" not in await concerns(machines)

    simulated(main)


def test_a_coordinator_that_is_missing_is_told_and_so_is_one_that_cannot_reach_the_metadata() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1", "c2")
        assert await concerns(machines) == {}
        machines.kill("c2")
        await asyncio.sleep(8.0)
        assert set(await concerns(machines)) == {"no_standby"}
        store = machines["c1"].store
        assert store is not None
        store.cut()
        await asyncio.sleep(7.0)
        code, found = await health(machines, "c1")
        assert code == 503
        assert any("this coordinator has not reached ZooKeeper for 7 s" in one for one in found["problems"])
        assert (await gauges(machines, "c1", "strom_metadata"))["strom_metadata_silent_seconds"] >= 7
        store.heal()
        await asyncio.sleep(2.0)
        assert (await health(machines, "c1"))[0] == 200

    simulated(main)


def test_a_server_cut_off_from_the_metadata_says_so_itself_and_to_the_coordinator() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        store = machines["t2"].store
        assert store is not None
        store.cut()
        await asyncio.sleep(7.0)
        code, found = await health(machines, "t2")
        assert code == 503
        assert "this tablet server has not reached ZooKeeper" in found["problems"][0]
        assert "tablet server 2 has not reached ZooKeeper" in (await concerns(machines))["metadata_silent"]
        store.heal()
        await asyncio.sleep(2.0)
        assert (await health(machines, "t2"))[0] == 200

    simulated(main)


def test_a_copy_that_lags_is_told_with_bytes_and_seconds_and_writes_that_wait_for_it_are_a_problem() -> None:
    """The coordinator hears of all servers as ever, and none of them hears of another: nobody could lead better, and
    what each of them leads waits, since one copy alone is too few."""

    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines)
        database = await machines.connect("writer", f"c1:{PORT}")
        table = await database.create_table("k", {"a": "INT"}, buckets=BUCKETS, bucket_key="a")
        await asyncio.sleep(1.0)
        for one, other in (("t1", "t2"), ("t2", "t3"), ("t1", "t3")):
            machines.network.stall(one, other)
        await table.append([{"a": number} for number in range(1000)])
        flushing = asyncio.ensure_future(database.flush())
        await asyncio.sleep(8.0)
        assert not flushing.done()
        found = await _server(machines, "c1").site.describe()
        told = [(one["kind"], one["what"]) for one in found["cluster"]["concerns"]]
        lagging = [what for kind, what in told if kind == "lagging"]
        assert any(what.startswith("tablet server 2 is behind tablet server 1") for what in lagging)
        assert any(what.startswith("tablet server 1 is behind tablet server 2") for what in lagging)
        assert "server_gone" not in dict(told)
        waiting = sorted(what for kind, what in told if kind == "writes_wait")
        assert [what.partition(" for ")[0] for what in waiting] == [
            f"tablet server {number}: writes to 2 buckets wait" for number in (1, 2, 3)
        ]
        assert (await health(machines, "c1"))[0] == 503
        behind = await gauges(machines, "t1", "strom_replica_lag")
        assert behind["strom_replica_lagging"] == 4
        assert behind["strom_replica_lag_bytes"] > 1000
        assert behind["strom_replica_lag_seconds_max"] > 7
        machines.network.heal()
        await flushing
        await asyncio.sleep(10.0)
        assert set(await concerns(machines)) == {"no_standby"}

    simulated(main)
