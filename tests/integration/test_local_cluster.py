"""``strom up --servers``: a whole cluster from one command, which leaves nothing behind however it ends."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import strom
from cli.command import Ran
from cli.command import strom as command
from strom.testing.process import ForegroundProcess, ServerFailed, alive
from waiting import until_blocking


class UpProcess(ForegroundProcess):
    """``strom up --servers 2``."""

    def command(self, ready_path: Path) -> list[str]:
        return [
            *(sys.executable, "-m", "strom.server.process.up", "--data", str(self.folder)),
            *("--servers", "2", "--replicas", "2", "--ready-file", str(ready_path), "--leash"),
            *self._pairs({"http.port": -1, **self.settings}),
        ]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpProcess]:
    with UpProcess(tmp_path_factory.mktemp("up") / "data") as running:
        yield running


def says(cluster: UpProcess, *words: str) -> Ran:
    return command(*words, server=cluster.address)


def test_it_is_a_cluster_with_copies_and_tells_how_it_is(cluster: UpProcess) -> None:
    with strom.connect(cluster.address) as db:
        db.create_table("t", {"a": "INT"}, buckets=4).append([{"a": 1}])
        db.flush()
    status = says(cluster, "cluster", "status")
    assert (status.code, status.err) == (0, "")
    assert "active, term 1" in status.out
    assert "2 tablet servers, all there" in status.out
    assert "4: all copies in sync" in status.out
    servers = [
        json.loads(line) for line in says(cluster, "cluster", "servers", "-o", "json").out.splitlines()
    ]
    assert [(one["id"], one["state"], one["copies"]) for one in servers] == [(0, "up", 4), (1, "up", 4)]
    assert sum(one["leads"] for one in servers) == 4


def test_lookups_can_be_strong_and_planned_reads_are_answered_by_followers(cluster: UpProcess) -> None:
    with strom.connect(cluster.address) as db:
        users = db.create_table("users", {"id": "INT", "name": "STRING"}, primary_key="id", buckets=2)
        users.upsert([{"id": number, "name": f"name {number}"} for number in range(100)])
        users.flush()
        assert users.lookup(1, strong=True) == {"id": 1, "name": "name 1"}
        assert users.lookup_many([3, 200], strong=True).column("id").to_pylist() == [3, None]

        def answered_by_followers(table: strom.Table) -> bool:
            plan = table.scan().plan()
            assert table.read_plan(plan).to_arrow().num_rows == table.count()
            told = next(one for one in db.status()["tables"] if one["name"].endswith(table.name))
            return bool(told["bytes_followed"])

        until_blocking(lambda: answered_by_followers(users), 30.0)
        until_blocking(lambda: answered_by_followers(db.table("t")), 30.0)
    found = says(cluster, "lookup", "users", "7", "--strong", "-o", "json")
    assert (found.code, json.loads(found.out)) == (0, {"id": 7, "name": "name 7"})


def test_a_process_that_is_killed_is_started_again(cluster: UpProcess) -> None:
    """The processes are this one, ZooKeeper, the coordinator and the two tablet servers, in this order."""
    with strom.connect(cluster.address) as db:
        os.kill(cluster.pids[3], signal.SIGKILL)
        until_blocking(lambda: not db.status()["cluster"]["servers"][0]["alive"], 10.0)
        until_blocking(lambda: not db.status()["cluster"]["buckets"]["under_replicated"], 60.0)
    assert "tablet-0 ended with code -9; starting it again" in cluster.output()


def test_a_folder_of_one_machine_is_refused(tmp_path: Path) -> None:
    (tmp_path / "strom.json").write_text("{}")
    wrong = UpProcess(tmp_path)
    with pytest.raises(ServerFailed, match="holds the data of one machine"):
        wrong.start()
    wrong.close()


def test_it_stops_as_one_and_goes_on_where_it_was(cluster: UpProcess) -> None:
    """Last, because it stops what the others share."""
    pids = cluster.pids
    assert cluster.stop(signal.SIGINT) == 0
    until_blocking(lambda: not any(alive(pid) for pid in pids), 10.0)
    cluster.start()
    with strom.connect(cluster.address) as db:
        assert db.table("t").count() == 1
    pids = cluster.pids
    cluster.kill()
    until_blocking(lambda: not any(alive(pid) for pid in pids), 30.0)
    assert not any(alive(pid) for pid in pids), "nobody outlives the one who started it"
