"""Which buckets of a table a tablet server leads: asked of what it knows of itself, not of every bucket there is."""

from __future__ import annotations

import pytest

from coordinator.house import House, described, path
from strom.coordinator import commands, replica_rows
from strom.coordinator.catalog import Catalog, ListenerAddress, ServerEntry
from strom.coordinator.limits import DecisionLimits
from strom.model.table import TableEntry
from strom.replication.bucket_entry import BucketEntry, decode_bucket
from strom.replication.registration import DataDisk, Registration
from strom.server.tablets.tablets import led_by

LIMITS = DecisionLimits(replicated=True, replication_factor_default=2)
SERVERS = (1, 2, 3)


def cluster() -> House:
    """Two tables on three servers, one of them with partitions."""
    made = House(limits=LIMITS)
    for server_id in SERVERS:
        registration = Registration(server_id, 77, (DataDisk(f"d{server_id}", 0),), "rack")
        listeners = {"CLIENT": ListenerAddress(f"h{server_id}", 9)}
        made.do(commands.register_server, ServerEntry(server_id, listeners, registration))
    made.do(commands.take_over, "c1", {"CLIENT": ListenerAddress("c", 1)}, instead_of=None)
    made.do(commands.create_table, path("plain"), described(buckets=12), now_ms=0)
    made.do(commands.create_table, path("parts"), described(buckets=6, partition_by=("day",)), now_ms=0)
    for day in ("d1", "d2"):
        made.do(commands.create_partition, path("parts"), {"day": day}, now_ms=0)
    return made


def test_it_is_what_the_entries_say_and_none_of_others_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cluster()
    tables: list[TableEntry] = made.catalog.all_tables()
    decoded: list[str] = []

    def noted(key: str, value: bytes) -> BucketEntry:
        decoded.append(key)
        return decode_bucket(key, value)

    views = {one: Catalog.of(made.store.read(), LIMITS, one) for one in SERVERS}
    monkeypatch.setattr(replica_rows, "decode_bucket", noted)
    found = [(one, table, led_by(one, table, view)) for one, view in views.items() for table in tables]
    assert not decoded
    assert sum(len(led) for _, _, led in found) == 24
    for server_id, table, led in found:
        assert {one.table_id for one in led} <= {table.table_id}
        assert {made.catalog.leader_of(one) for one in led} <= {server_id}
