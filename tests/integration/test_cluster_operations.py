"""What people do to a cluster, by ``strom cluster``, and what it says and asks: against real processes."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import strom
from cli.command import Ran
from cli.command import strom as command
from integration.busy import Busy
from strom.errors import StaleEpoch
from strom.testing.cluster_process import ClusterProcess, RoleProcess
from strom.testing.process import ServerFailed, ServerProcess
from waiting import until_blocking

BUCKETS = 6
COMMANDS = ("status", "servers", "buckets", "move", "rebalance", "decommission", "elect", "losses")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    """Three servers for tables of two copies: so one of them can leave."""
    settings = {"default.replication.factor": 2, "leader.return.interval": 0}
    with ClusterProcess(
        tmp_path_factory.mktemp("operated"), tablets=3, coordinators=2, settings=settings
    ) as running:
        with strom.connect(running.address) as db:
            db.create_table("t", {"a": "BIGINT"}, buckets=BUCKETS).append([{"a": 1}])
            db.flush()
        yield running


def says(machines: ClusterProcess, *words: str, answer: str = "") -> Ran:
    return command("cluster", *words, server=machines.address, stdin=answer.encode())


def servers(machines: ClusterProcess) -> dict[int, dict[str, object]]:
    lines = says(machines, "servers", "-o", "json").out.splitlines()
    return {one["id"]: one for one in map(json.loads, lines)}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_with_examples_and_the_group_lists_it(name: str) -> None:
    told = command("cluster", name, "--help")
    assert (told.code, told.err) == (0, "")
    assert f"  strom cluster {name}" in told.out or f"strom --server db1:9123 cluster {name}" in told.out
    listed = command("cluster", "--help").out.split("Commands:")[1].split("\n  ")
    assert [line.split()[0] for line in listed if line.strip()] == list(COMMANDS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["buckets", "nothere"], "There is no table fluss.nothere"),
        (["move", "t", "--bucket", "99", "--leader", "1"], "fluss.t has no bucket 99: it has 6, from 0 on"),
        (["move", "t", "--bucket", "0", "--to", "1,7"], "fluss.t bucket 0 cannot have its copies on [1, 7]"),
        (["move", "t", "--bucket", "0", "--to", "1,1"], "name servers of the cluster (1, 2, 3), each once"),
        (["move", "t", "--bucket", "0", "--leader", "9"], "server 9 shall have no copy of fluss.t bucket 0"),
        (["move", "t", "--bucket", "0", "--partition", "x", "--leader", "1"], "has no partition 'x'"),
        (["elect", "t", "--bucket", "-1"], "fluss.t has no bucket -1"),
        (["elect", "t", "--unclean", "--server", "1"], "name it with --bucket N"),
        (["elect", "t", "--bucket", "0", "--unclean", "--server", "1"], "there is nothing to give up"),
        (["decommission", "9"], "the cluster has no tablet server 9: it has 1, 2, 3"),
        (["decommission", "9", "--status"], "the cluster has no tablet server 9: it has 1, 2, 3"),
        (["decommission", "3", "--cancel"], "server 3 is not leaving"),
        (["rebalance", "--cancel"], "no rebalance runs"),
    ],
)
def test_what_cannot_be_done_is_refused_at_once_in_the_words_of_the_command_line(
    machines: ClusterProcess, words: list[str], said: str
) -> None:
    told = says(machines, *words)
    assert told.code == 1
    assert said in told.err
    assert "/-/" not in told.err, "an id is no word of the command line"


@pytest.mark.parametrize(
    "words",
    [
        *(
            ["status"],
            ["servers"],
            ["buckets"],
            ["move", "t", "--bucket", "0", "--leader", "1"],
            ["rebalance"],
        ),
        *(["rebalance", "--status"], ["decommission", "1"], ["decommission", "1", "--status"]),
        *(["elect", "t"], ["losses"]),
    ],
)
def test_a_server_that_is_no_cluster_says_so(server: ServerProcess, words: list[str]) -> None:
    told = command("cluster", *words, server=server.address)
    assert (told.code, told.out) == (1, "")
    assert "this server is no cluster" in told.err


def test_a_second_coordinator_on_a_folder_says_what_is_wrong_and_nothing_else(
    machines: ClusterProcess,
) -> None:
    first = machines.coordinators[0]
    again = RoleProcess("coordinator", first.folder, first.settings)
    with pytest.raises(
        ServerFailed, match=r"another coordinator runs on .* choose another data\.dir"
    ) as failed:
        again.start()
    again.close()
    assert "Traceback" not in str(failed.value)


def test_a_bucket_is_moved_and_led_by_whom_a_person_names(machines: ClusterProcess) -> None:
    with strom.connect(machines.address) as db:
        before = db.bucket_copies("t")[0]
        (outside,) = {1, 2, 3} - set(before.wanted)
        begun = says(machines, "move", "t", "--bucket", "0", "--to", f"{outside},{before.wanted[0]}")
        assert begun.code == 0
        assert "copies are being made: strom cluster buckets t shows when they are in sync" in begun.err
        until_blocking(lambda: set(db.bucket_copies("t")[0].in_sync) == {outside, before.wanted[0]}, 30.0)
        until_blocking(lambda: not db.bucket_copies("t")[0].moving, 30.0)
        led = says(machines, "move", "t", "--bucket", "0", "--leader", str(outside))
        assert led.code == 0
        assert db.bucket_copies("t")[0].leader == outside
        until_blocking(lambda: "all copies in sync" in says(machines, "status").out, 30.0)


def test_a_server_leaves_after_a_plan_and_a_question_and_comes_back_when_copies_are_evened_out(
    machines: ClusterProcess,
) -> None:
    had = int(str(servers(machines)[3]["copies"]))
    assert had > 0
    shown = says(machines, "decommission", "3", "--dry-run")
    assert (shown.code, shown.out.count("fluss.t")) == (0, had), "one line for each bucket"
    assert f"{had} bucket" in shown.err
    refused = says(machines, "decommission", "3", answer="n\n")
    assert refused.code == 1
    assert "Carry it out? [y/N]" in refused.out
    stays = says(machines, "decommission", "3", "--status")
    assert (stays.code, stays.out) == (1, f"server 3 is not leaving: it has copies of {had} buckets\n")
    agreed = says(machines, "decommission", "3", "--fewer-racks", answer="y\n")
    assert agreed.code == 0
    assert "it runs: strom cluster decommission 3 --status" in agreed.err
    until_blocking(lambda: says(machines, "decommission", "3", "--status").code == 0, 30.0)
    assert says(machines, "decommission", "3", "--status").out.endswith(
        "server 3 has no copies: it can be stopped\n"
    )
    assert "all there; leaving: 3 (copies left: 0)" in says(machines, "status").out
    assert servers(machines)[3]["state"] == "up, leaving"
    with strom.connect(machines.address) as db:
        db.create_table("later", {"a": "BIGINT"}, buckets=3)
        assert not any(3 in one.servers for one in db.bucket_copies("later"))
    too_many = says(machines, "decommission", "2")
    assert too_many.code == 1
    assert "only 1 of the servers that answer would stay" in too_many.err
    assert says(machines, "decommission", "3", "--cancel").code == 0
    assert says(machines, "status").out.splitlines()[2].endswith("all there")

    plan = says(machines, "rebalance", "--dry-run")
    assert "copies to make" in plan.err
    evened = says(machines, "rebalance", "--yes")
    assert "it runs: strom cluster rebalance --status" in evened.err
    until_blocking(lambda: says(machines, "rebalance", "--status").code == 0, 30.0)
    done = says(machines, "rebalance", "--status")
    assert ": done, " in done.out
    assert int(str(servers(machines)[3]["copies"])) > 0
    assert says(machines, "rebalance").err == "the servers are even: nothing to do\n"
    with strom.connect(machines.address) as db:
        assert db.table("t").count() == 1


def test_a_person_gives_up_rows_that_only_dead_servers_have_and_whoever_saw_them_is_told(
    machines: ClusterProcess,
) -> None:
    with strom.connect(machines.address) as db:
        table = db.create_table("given_up", {"a": "BIGINT"}, properties={"table.replication.factor": 3})
        tail = table.tail(start="earliest", timeout=90.0)
        append(db, "given_up", range(10))
        lagging = db.bucket_copies("given_up")[0].servers[-1]
        machines.tablets[lagging].kill()
        until_blocking(lambda: lagging not in db.bucket_copies("given_up")[0].in_sync, 30.0)
        append(db, "given_up", range(10, 20))
        seen: list[int] = []
        while len(seen) < 20:
            seen += next(tail).data["a"].to_pylist()
        in_sync = [number for number in machines.tablets if number != lagging]
        for number in in_sync:
            machines.tablets[number].kill()
        machines.tablets[lagging].start()
        until_blocking(lambda: "without a leader" in says(machines, "status").out, 30.0)

        words = ("elect", "given_up", "--bucket", "0", "--unclean", "--server", str(lagging))
        said = (
            f"lost: acknowledged rows from offset 10 on that only servers {in_sync[0]},{in_sync[1]} may have"
        )
        refused = says(machines, *words, answer="n\n")
        assert (refused.code, said in refused.out) == (1, True)
        assert db.losses() == []
        agreed = says(machines, *words, answer="y\n")
        assert (agreed.code, said in agreed.out) == (0, True)
        (loss,) = map(json.loads, says(machines, "losses", "-o", "json").out.splitlines())
        assert (loss["table"], loss["leader"], loss["end"]) == ("fluss.given_up", lagging, 10)
        assert loss["missing"] == f"{in_sync[0]},{in_sync[1]}"
        assert loss["decided by"] not in ("", "the rules")

        for number in in_sync:
            machines.tablets[number].begin()
        for number in in_sync:
            machines.tablets[number].wait_ready()
        append(db, "given_up", range(100, 110))
        assert table.scan().to_arrow()["a"].to_pylist() == [*range(10), *range(100, 110)]
        with pytest.raises(StaleEpoch, match="lost the rows from offset 10 to 20 that this reader has seen"):
            next(tail)
        until_blocking(lambda: "all copies in sync" in says(machines, "status").out, 30.0)


def append(db: strom.Database, name: str, numbers: range) -> None:
    """Rows that are acknowledged."""
    db.table(name).append([{"a": number} for number in numbers])
    db.flush()


def test_every_process_is_restarted_in_turn_without_a_failed_request(machines: ClusterProcess) -> None:
    """Last, because its tables have three copies. As operating.md says: all copies in sync before the next one."""
    with strom.connect(machines.address) as db, Busy(db, machines.address) as busy:
        for one in machines.roles:
            busy.goes_on()
            assert one.stop() == 0
            busy.goes_on()
            one.start()
            until_blocking(lambda: "all there" in says(machines, "status").out, 60.0)
            until_blocking(lambda: "all copies in sync" in says(machines, "status").out, 60.0)
        busy.goes_on()
        busy.end()
        assert busy.errors == []
        assert busy.rows() == list(range(busy.written))
