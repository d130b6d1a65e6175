"""Servers and leaders."""

from __future__ import annotations

from collections import Counter

from coordinator.house import House, path
from strom.coordinator import commands
from strom.coordinator.catalog import ListenerAddress, ServerEntry
from strom.coordinator.placement import leaders
from strom.model.bucket import BucketId


def test_a_server_is_known_by_its_addresses_after_a_restart() -> None:
    house = House()
    server = ServerEntry(
        3, {"CLIENT": ListenerAddress("127.0.0.1", 9123), "SASL": ListenerAddress("host", 9124)}
    )
    house.do(commands.register_server, server)
    house.do(commands.register_coordinator, ServerEntry(0, {"CLIENT": ListenerAddress("127.0.0.1", 9000)}))
    catalog = House(house.store).catalog
    assert catalog.servers == {3: server}
    assert catalog.coordinator == ServerEntry(0, {"CLIENT": ListenerAddress("127.0.0.1", 9000)})


def test_registering_again_commits_only_a_new_address() -> None:
    house = House()
    house.servers(1)
    version = house.catalog.version
    house.servers(1)
    assert house.catalog.version == version
    house.do(commands.register_server, ServerEntry(1, {"CLIENT": ListenerAddress("h", 1)}))
    assert house.catalog.servers[1].listeners["CLIENT"].port == 1


def test_buckets_are_led_round_robin() -> None:
    house = House()
    house.servers(1, 2, 3)
    table = house.table("events", buckets=6)
    assert sorted(Counter(table.leaders).values()) == [2, 2, 2]
    assert [house.catalog.leader_of(BucketId(table.table_id, None, bucket)) for bucket in range(7)] == [
        *table.leaders,
        None,
    ]


def test_partitions_have_leaders_of_their_own_and_their_table_has_none() -> None:
    house = House()
    house.servers(1, 2)
    table = house.table("events", buckets=2, partition_by=("day",))
    partition = house.partition("events", {"day": "monday"})
    assert (table.leaders, sorted(partition.leaders)) == ((), [1, 2])
    bucket = BucketId(table.table_id, partition.partition_id, 1)
    assert house.catalog.leader_of(bucket) == partition.leaders[1]
    assert house.catalog.leader_of(bucket._replace(table_id=99)) is None
    assert house.catalog.leader_of(bucket._replace(partition_id=99)) is None
    assert house.catalog.leader_of(bucket._replace(partition_id=None)) is None


def test_small_tables_and_partitions_spread_over_all_servers() -> None:
    found = Counter(leaders(number, 1, [4, 7, 9]) for number in range(30))
    assert found == {(4,): 10, (7,): 10, (9,): 10}


def test_without_servers_nobody_leads_until_leaders_are_assigned() -> None:
    house = House()
    table = house.table("events", buckets=2)
    assert (table.leaders, house.catalog.leader_of(BucketId(table.table_id, None, 0))) == ((), None)
    house.servers(1)
    assert house.do(commands.reassign_leaders, [1]) == 1
    assert house.catalog.table(path("events")).leaders == (1, 1)
    assert house.catalog.leaders_epoch(table.table_id, None) == 1


def test_a_restart_with_the_same_servers_moves_nothing() -> None:
    house = House()
    house.servers(1, 2)
    house.table("events", buckets=5)
    house.table("parted", buckets=5, partition_by=("day",))
    house.partition("parted", {"day": "monday"})
    version = house.catalog.version
    assert house.do(commands.reassign_leaders, [2, 1]) == 0
    assert house.catalog.version == version


def test_other_servers_take_over_with_a_higher_epoch_and_the_old_ones_are_forgotten() -> None:
    house = House()
    house.servers(1, 2, 3)
    table = house.table("events", buckets=3)
    parted = house.table("parted", buckets=3, partition_by=("day",))
    partition = house.partition("parted", {"day": "monday"})
    assert house.do(commands.reassign_leaders, [1]) == 2
    catalog = house.catalog
    assert set(catalog.servers) == {1}
    assert catalog.table(path("events")).leaders == (1, 1, 1)
    assert catalog.partition_by_id(partition.partition_id).leaders == (1, 1, 1)
    assert catalog.leaders_epoch(table.table_id, None) == 1
    assert catalog.leaders_epoch(parted.table_id, partition.partition_id) == 1
    assert catalog.leaders_epoch(parted.table_id, None) == 0
    assert catalog.leaders_epoch(99, None) == 0


def test_altering_a_table_keeps_its_leaders_and_their_epoch() -> None:
    house = House()
    house.servers(1)
    table = house.table("events", buckets=2)
    house.servers(2)
    house.do(commands.reassign_leaders, [1, 2])
    house.do(
        commands.alter_table, path("events"), commands.Alteration(set={"table.log.ttl": "1 d"}), now_ms=1
    )
    assert sorted(house.catalog.table(path("events")).leaders) == [1, 2]
    assert house.catalog.leaders_epoch(table.table_id, None) == 1
