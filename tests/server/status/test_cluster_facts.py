"""What is told of a cluster: counted from the catalog and from who answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.house import House, described, path
from strom.coordinator import commands, keys
from strom.coordinator.catalog import ListenerAddress, ServerEntry
from strom.coordinator.limits import DecisionLimits
from strom.coordinator.replica_rows import ReplicaRows
from strom.metadata.changes import Put
from strom.model.bucket import BucketId
from strom.replication.bucket_entry import BucketEntry, encode_bucket
from strom.replication.registration import DataDisk, Registration
from strom.server.status.cluster_facts import cluster_facts


def house(servers: int = 3) -> House:
    """A cluster with a table of two buckets and three copies each."""
    made = House(limits=DecisionLimits(replicated=True, replication_factor_default=3))
    for server_id in range(1, servers + 1):
        listeners = {"CLIENT": ListenerAddress(f"h{server_id}", 9), "INNER": ListenerAddress("hidden", 1)}
        registration = Registration(server_id, 77, (DataDisk(f"d{server_id}", 0),), f"rack{server_id}")
        made.do(commands.register_server, ServerEntry(server_id, listeners, registration))
    made.do(commands.take_over, "c1", {"CLIENT": ListenerAddress("c", 1)}, instead_of=None)
    made.do(commands.create_table, path("t"), described(buckets=2), now_ms=0)
    return made


def test_servers_have_their_racks_and_addresses_but_not_those_that_only_servers_use() -> None:
    found = cluster_facts(house().catalog, "x", {1, 2, 3})
    assert found["id"] == "x"
    assert [(one["id"], one["rack"], one["address"], one["alive"]) for one in found["servers"]] == [
        (1, "rack1", "h1:9", True),
        (2, "rack2", "h2:9", True),
        (3, "rack3", "h3:9", True),
    ]
    assert sum(one["leads"] for one in found["servers"]) == 2
    assert [one["copies"] for one in found["servers"]] == [2, 2, 2]


def test_buckets_are_counted_by_what_they_lack() -> None:
    made = house()
    leaders = {made.catalog.replicas.get(one).leader for one in made.catalog.replicas}
    bystander = ({1, 2, 3} - leaders).pop()

    def counts(alive: set[int]) -> dict[str, int]:
        found: dict[str, int] = cluster_facts(made.catalog, "x", alive)["buckets"]
        return {name: count for name, count in found.items() if count}

    assert counts({1, 2, 3}) == {"all": 2}
    assert counts({1, 2, 3} - {bystander}) == {"all": 2, "under_replicated": 2}
    assert counts({bystander}) == {
        "all": 2,
        "under_replicated": 2,
        "under_min_insync": 2,
        "without_leader": 2,
    }


def test_buckets_that_lack_something_are_named_and_the_rest_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = house()
    decoded: list[BucketId] = []
    get = ReplicaRows.get

    def counting(rows: ReplicaRows, bucket: BucketId) -> BucketEntry | None:
        decoded.append(bucket)
        return get(rows, bucket)

    monkeypatch.setattr(ReplicaRows, "get", counting)
    assert cluster_facts(made.catalog, "x", {1, 2, 3})["lacking"] == {}
    assert decoded == [], "nothing lacks, so no entry is read"
    lost = BucketId(1, None, 1)
    entry = get(made.catalog.replicas, lost)
    assert entry is not None
    behind = replace(entry, losses=1).with_in_sync(
        one for one in entry.in_sync if one.server_id == entry.leader
    )
    made.store.commit([], [Put(keys.replicas(lost), encode_bucket(behind))])
    found = cluster_facts(made.catalog, "x", {1, 2, 3})
    kinds = ("under_min_insync", "under_replicated", "losses")
    assert found["lacking"] == {kind: ["fluss.t bucket 1"] for kind in kinds}
    made.store.commit([], [Put(keys.replicas(lost), encode_bucket(entry))])
    assert made.catalog.replicas.lacking() == []
    assert cluster_facts(made.catalog, "x", {1, 2, 3})["lacking"] == {}


def test_a_server_that_was_restarted_leads_nothing_until_it_is_elected() -> None:
    made = house()
    again = Registration(1, 78, (DataDisk("d1", 0),), "rack1")
    led = made.catalog.replicas.leader_count(1)
    assert led > 0
    made.do(commands.register_server, ServerEntry(1, {"CLIENT": ListenerAddress("h1", 9)}, again))
    assert cluster_facts(made.catalog, "x", {1, 2, 3})["buckets"]["without_leader"] == led
    made.do(commands.elect_leaders, [1], alive={1, 2, 3})
    assert cluster_facts(made.catalog, "x", {1, 2, 3})["buckets"]["without_leader"] == 0
