"""What ``strom cluster`` prints of a cluster's facts."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from typer.testing import CliRunner

from strom.cli import cluster
from strom.client.admin.copies_admin import BucketCopies

FINE = dict.fromkeys(("under_replicated", "under_min_insync", "without_leader", "moving"), 0)


def facts(buckets: dict[str, int] | None = None, alive: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
    server = {"rack": "north", "address": "h:1", "leads": 3, "copies": 6, "disks": 1}
    return {
        "coordinators": [
            {"address": "c1:9123", "active": True, "term": 4},
            {"address": "c2:9123", "active": False, "term": None},
        ],
        "servers": [{"id": one, "alive": one in alive, **server} for one in (1, 2)],
        "buckets": {"all": 6, **FINE, **(buckets or {})},
    }


def said(monkeypatch: pytest.MonkeyPatch, found: dict[str, Any], *words: str) -> tuple[int, list[str]]:
    monkeypatch.setattr(cluster, "_facts", lambda context: found)
    result = CliRunner().invoke(cluster.app, words)
    return result.exit_code, result.output.splitlines()


def test_a_cluster_that_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(monkeypatch, facts(), "status") == (
        0,
        [
            "coordinator  c1:9123  active, term 4",
            "coordinator  c2:9123  stands by",
            "servers      2 tablet servers, all there",
            "buckets      6: all copies in sync",
        ],
    )


def test_what_is_missing_is_told_and_what_cannot_be_written_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, lines = said(monkeypatch, facts({"under_replicated": 4, "moving": 1}, alive=(2,)), "status")
    assert code == 0
    assert lines[2:] == [
        "servers      2 tablet servers, not there: 1",
        "buckets      6: 4 with fewer copies in sync than wanted, 1 on the move",
    ]
    code, lines = said(monkeypatch, facts({"without_leader": 2}), "status")
    assert (code, lines[3]) == (1, "buckets      6: 2 without a leader")
    code, lines = said(monkeypatch, facts({"under_min_insync": 1}), "status")
    assert (code, lines[3]) == (1, "buckets      6: 1 with too few copies in sync to be written to")


def test_what_was_given_up_once_is_no_copy_that_somebody_has_to_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_up = "; 3 in which acknowledged rows may have been given up (strom cluster losses)"
    _, lines = said(monkeypatch, facts({"losses": 3}), "status")
    assert lines[3] == "buckets      6: all copies in sync" + given_up
    _, lines = said(monkeypatch, facts({"losses": 3, "moving": 1}), "status")
    assert lines[3] == "buckets      6: 1 on the move" + given_up


def test_a_cluster_without_an_active_coordinator_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    found = facts()
    found["coordinators"] = found["coordinators"][1:]
    _, lines = said(monkeypatch, found, "status")
    assert lines[:2] == ["coordinator  c2:9123  stands by", "coordinator  none is active right now"]


def test_servers_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    code, lines = said(monkeypatch, facts(alive=(1,)), "servers", "-o", "csv")
    assert code == 0
    assert lines == [
        "id,rack,address,state,leads,copies,disks",
        "1,north,h:1,up,3,6,1",
        "2,north,h:1,gone,3,6,1",
    ]


class Moved:
    """A database that remembers what it was asked to move."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.found = [bucket(0), bucket(1, in_sync=(2, 3)), bucket(2, leader=None, in_sync=())]

    def bucket_copies(self, table: str | None) -> list[BucketCopies]:
        self.asked.append((table,))
        return self.found

    def move_bucket(self, table: str, number: int, **named: object) -> BucketCopies:
        self.asked.append((table, number, named))
        return bucket(number, wanted=(4, 2, 3))


def bucket(number: int, **facts: Any) -> BucketCopies:
    fine = {"leader": 1, "servers": (1, 2, 3), "wanted": (1, 2, 3), "in_sync": (1, 2, 3)}
    named = {**fine, **facts}
    return BucketCopies("fluss.t", None, number, epoch=5, min_insync=2, losses=0, **named)


def said_by(monkeypatch: pytest.MonkeyPatch, database: Moved, *words: str) -> tuple[int, list[str]]:
    monkeypatch.setattr(cluster, "connected", lambda context: nullcontext(database))
    return said(monkeypatch, facts(), *words)


def test_buckets_are_rows_and_only_those_that_lack_something_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = Moved()
    code, lines = said_by(monkeypatch, database, "buckets", "t", "-o", "csv")
    assert code == 0
    assert lines[:2] == [
        "table,partition,bucket,leader,epoch,copies,in sync,wanted,moving,lacks,losses",
        'fluss.t,"",0,1,5,"1,2,3","1,2,3","1,2,3","","",0',
    ]
    _, lacking = said_by(monkeypatch, database, "buckets", "--lacking", "-o", "csv")
    assert lacking[1:] == [
        'fluss.t,"",1,1,5,"1,2,3","2,3","1,2,3","",not in sync: 1,0',
        'fluss.t,"",2,none,5,"1,2,3","","1,2,3","",no leader,0',
    ]
    assert database.asked == [("t",), (None,)]


def test_a_move_says_what_was_asked_and_that_it_takes_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    database = Moved()
    code, lines = said_by(monkeypatch, database, "move", "t", "--bucket", "2", "--to", "4, 2,3")
    assert code == 0
    assert database.asked == [("t", 2, {"to": [4, 2, 3], "leader": None, "partition": None})]
    assert any("copies are being made" in line for line in lines)


@pytest.mark.parametrize("words", [(), ("--to", "one,2")])
def test_a_move_that_does_not_say_where_is_refused(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    database = Moved()
    code, _ = said_by(monkeypatch, database, "move", "t", "--bucket", "2", *words)
    assert code != 0
    assert database.asked == []
