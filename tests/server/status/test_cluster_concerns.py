"""What is told to whoever runs a cluster: each failure by its name, its weight and what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strom.server.status.cluster_concerns import cluster_concerns, unevenness
from strom.server.status.concern import Concern
from strom.server.web.health import health_answer, server_concerns

FINE = dict.fromkeys(("without_leader", "under_min_insync", "under_replicated", "moving", "losses"), 0)


def facts(**changed: Any) -> dict[str, Any]:
    """A cluster of three servers and two coordinators that is well, but for ``changed``."""
    server = {"rack": "", "address": "h:1", "alive": True, "leads": 10, "copies": 30, "disks": 1}
    return {
        "coordinators": [{"address": "c1", "active": True}, {"address": "c2", "active": False}],
        "servers": [{"id": number, **server, **changed.get(f"server{number}", {})} for number in (1, 2, 3)],
        "buckets": {"all": 30, **FINE, **changed.get("buckets", {})},
        "lacking": changed.get("lacking", {}),
    }


def told(found: dict[str, Any], summaries: dict[int, dict[str, Any]] | None = None) -> dict[str, Concern]:
    return {one.kind: one for one in cluster_concerns(found, summaries or {})}


def test_nothing_is_said_of_a_cluster_that_is_well() -> None:
    assert told(facts()) == {}


@pytest.mark.parametrize(
    ("kind", "level", "word"),
    [
        ("without_leader", "bad", "neither written nor read"),
        ("under_min_insync", "bad", "table.min.insync"),
        ("under_replicated", "note", "fewer copies in sync"),
        ("losses", "note", "may have been given up"),
    ],
)
def test_buckets_are_counted_named_and_weighed(kind: str, level: str, word: str) -> None:
    found = told(facts(buckets={kind: 7}, lacking={kind: ["shop.t bucket 1", "shop.t bucket 2"]}))
    assert list(found) == [kind]
    one = found[kind]
    assert one.level == level
    assert word in one.what
    assert one.what.startswith("7 buckets")
    assert one.what.endswith("shop.t bucket 1, shop.t bucket 2 and 5 more")
    assert one.advice


def test_a_server_that_is_gone_says_since_when_and_why() -> None:
    gone = {"alive": False, "silent_s": 300.0, "why": "its process has ended"}
    one = told(facts(server2=gone))["server_gone"]
    assert one.what == "tablet server 2 (h:1) does not answer since 5 min: its process has ended"
    assert one.level == "note", "others lead its buckets; what nobody leads is told by itself"


def test_coordinators_that_are_missing() -> None:
    alone = facts()
    alone["coordinators"] = alone["coordinators"][:1]
    assert told(alone)["no_standby"].level == "note"
    nobody = facts()
    nobody["coordinators"] = nobody["coordinators"][1:]
    assert told(nobody)["no_active_coordinator"].level == "bad"


def test_what_servers_say_of_themselves_and_of_each_other() -> None:
    lag = {"buckets": 12, "bytes": 3 << 20, "seconds": 61.0}
    found = told(
        facts(),
        {
            1: {"copies": {"lagging": {"3": lag}}},
            2: {"copies": {"metadata_lost": True, "metadata_silent_s": 7.0, "offline": 2}},
            3: {"copies": {}, "clock_apart_s": -90.0},
        },
    )
    assert {kind: one.level for kind, one in found.items()} == {
        "lagging": "note",
        "metadata_silent": "bad",
        "copies_offline": "bad",
        "clocks_apart": "note",
    }
    assert (
        found["lagging"].what
        == "tablet server 3 is behind tablet server 1 in 12 buckets: 3.0 MB, for up to 61.0 s"
    )
    assert "tablet server 2 has not reached ZooKeeper for 7.0 s" in found["metadata_silent"].what


def test_uneven_servers_are_told_when_it_matters() -> None:
    assert "uneven_leads" not in told(facts(server1={"leads": 12}))
    assert "leads 20 buckets, the average is 13.3" in told(facts(server1={"leads": 20}))["uneven_leads"].what
    assert "has 60 copies" in told(facts(server2={"copies": 60}))["uneven_copies"].what
    assert told(facts(server1={"leads": 3}, server2={"leads": 1}, server3={"leads": 1})) == {}, (
        "too few to care"
    )
    heavy = {1: {"copies": {"bytes": 100 << 30}}, 2: {"copies": {"bytes": 1 << 30}}}
    assert "has 100.0 GB" in told(facts(), heavy)["uneven_bytes"].what
    assert unevenness([]) == unevenness([0, 0]) == unevenness([4, 4]) == 1.0
    assert unevenness([6, 2, 1]) == 2.0


def test_health_is_a_code_for_programs_and_words_for_people() -> None:
    note, bad = Concern("note", "a", "less in reserve", "do"), Concern("bad", "b", "cannot be read", "do")
    fine = health_answer([], role="active coordinator")
    assert (fine.status, json.loads(fine.body)["status"]) == (200, "healthy")
    degraded = health_answer([note], role="active coordinator")
    assert degraded.status == 200
    assert json.loads(degraded.body) == {
        "status": "degraded",
        "role": "active coordinator",
        "problems": [],
        "notes": ["less in reserve"],
    }
    broken = health_answer([note, bad])
    assert (broken.status, json.loads(broken.body)["problems"]) == (503, ["cannot be read"])


def test_a_silent_server_is_a_problem_only_where_nobody_else_has_its_buckets() -> None:
    summaries: dict[int, dict[str, Any]] = {1: {"tables": {}, "error": "does not answer"}}
    assert [one.level for one in server_concerns(summaries, gone_is_bad=True)] == ["bad"]
    assert list(server_concerns(summaries, gone_is_bad=False)) == []
