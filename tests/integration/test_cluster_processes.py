"""A cluster of real processes on a real ZooKeeper: killed, frozen, refused, stopped and started again."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import strom
from cli.command import strom as command
from strom.testing.cluster_process import ClusterProcess, RoleProcess
from strom.testing.process import ServerFailed, alive
from strom.testing.switchboard import CLIENT, Switchboard
from waiting import until_blocking


@pytest.fixture(scope="module")
def network() -> Iterator[Switchboard]:
    with Switchboard() as board:
        yield board


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, network: Switchboard) -> Iterator[ClusterProcess]:
    folder, pages = tmp_path_factory.mktemp("cluster"), {"http.port": 0}
    with ClusterProcess(folder, tablets=3, coordinators=2, settings=pages, board=network) as running:
        yield running


def rows(start: int, count: int) -> list[dict[str, int]]:
    return [{"a": number} for number in range(start, start + count)]


def numbers(table: strom.Table) -> list[int]:
    return sorted(table.scan().to_arrow()["a"].to_pylist())


def test_rows_that_were_acknowledged_are_there_when_their_server_is_killed_or_frozen(
    machines: ClusterProcess,
) -> None:
    with strom.connect(machines.address) as db:
        table = db.create_table("kept", {"a": "BIGINT"}, buckets=3)
        table.append(rows(0, 100))
        db.flush()
        machines.tablets[1].kill()
        table.append(rows(100, 100))
        db.flush()
        assert numbers(table) == list(range(200))
        machines.tablets[1].start()
        frozen = leader_of(machines, db, "kept")
        frozen.pause()
        try:
            table.append(rows(200, 100))
            db.flush()
            assert numbers(table) == list(range(300)), "and so are they while one is frozen"
        finally:
            frozen.resume()


@pytest.mark.parametrize("ways", ["to it", "from it", "both"])
def test_rows_go_to_another_server_when_one_is_cut_off_one_way_or_both(
    machines: ClusterProcess, network: Switchboard, ways: str
) -> None:
    with strom.connect(machines.address) as db:
        table = db.create_table(f"cut {ways}".replace(" ", "_"), {"a": "BIGINT"}, buckets=1)
        table.append(rows(0, 10))
        db.flush()
        leader = leader_of(machines, db, table.name).folder.name
        others = [one.folder.name for one in machines.roles if one.folder.name != leader]
        for other in (*others, "zookeeper-1", CLIENT):
            if ways != "from it":
                network.hold(other, leader)
            if ways != "to it":
                network.hold(leader, other)
        try:
            table.append(rows(10, 10))
            db.flush()
            assert leader_of(machines, db, table.name).folder.name != leader
        finally:
            network.heal()
        assert numbers(table) == list(range(20))


def leader_of(machines: ClusterProcess, db: strom.Database, name: str) -> RoleProcess:
    """A server that leads a bucket of the table."""
    return machines.tablets[db.table(name).describe().buckets[0].leader_id]


def health(process: RoleProcess) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://{process.http_address}/health", timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def _degraded(processes: Sequence[RoleProcess]) -> bool:
    return all((code, found["status"]) == (200, "degraded") for code, found in map(health, processes))


def test_a_killed_server_is_told_by_health_doctor_and_metrics(machines: ClusterProcess) -> None:
    with strom.connect(machines.address) as db:
        db.create_table("watched", {"a": "BIGINT"}, buckets=3)
        until_blocking(lambda: all(health(one)[1]["status"] == "healthy" for one in machines.roles), 60.0)
        machines.tablets[3].kill()
        until_blocking(lambda: _degraded(machines.coordinators), 20.0)
        assert _degraded(machines.coordinators), "its buckets are led by others by now"
        told = command("doctor", server=machines.address)
        assert told.code == 0, "a server that is gone is no failure of the cluster"
        assert "note  tablet server 3" in told.out
        assert "does not answer since" in told.out
        pages = [
            urllib.request.urlopen(f"http://{one.http_address}/metrics", timeout=30).read().decode()
            for one in machines.coordinators
        ]
        assert sum('strom_cluster_servers_gone{server="coordinator"} 1' in page for page in pages) == 1
        machines.tablets[3].start()
        until_blocking(lambda: not db.status()["cluster"]["buckets"]["under_replicated"], 60.0)


def test_another_coordinator_takes_over_and_clients_go_on(machines: ClusterProcess) -> None:
    first, second = machines.coordinators
    with strom.connect(machines.address) as db:
        first.kill()
        db.create_table("under_the_second", {"a": "BIGINT"})
        first.start()
        second.kill()
        db.create_table("under_the_first", {"a": "BIGINT"})
        second.start()
        assert {"under_the_first", "under_the_second"} <= set(db.tables())


def test_a_second_server_of_the_same_number_is_refused(machines: ClusterProcess, tmp_path: Path) -> None:
    again = RoleProcess("tablet", tmp_path / "again", machines.tablets[1].settings)
    with pytest.raises(ServerFailed, match="tablet server 1 runs already"):
        again.start()
    again.close()


def test_a_server_of_a_cluster_needs_the_clusters_metadata(machines: ClusterProcess, tmp_path: Path) -> None:
    alone = {**machines.tablets[1].settings, "metadata.store": "embedded"}
    wrong = RoleProcess("tablet", tmp_path / "wrong", alone)
    with pytest.raises(ServerFailed, match="a cluster keeps its metadata in ZooKeeper"):
        wrong.start()
    wrong.close()


def test_a_cluster_stops_cleanly_and_goes_on_where_it_was(machines: ClusterProcess) -> None:
    """Last, because it stops what the others share."""
    with strom.connect(machines.address) as db:
        db.create_table("after", {"a": "BIGINT"}, buckets=2).append(rows(0, 10))
        db.flush()
    pids = [one.pid for one in machines.roles]
    assert machines.stop() == [0] * 5
    until_blocking(lambda: not any(alive(pid) for pid in pids), 10.0)
    machines.start()
    with strom.connect(machines.address) as db:
        assert numbers(db.table("after")) == list(range(10))
