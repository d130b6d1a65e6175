"""Which servers exist, and what each leads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strom.coordinator import keys
from strom.coordinator.catalog import Catalog, ServerEntry
from strom.coordinator.entries import encode_partition, encode_server, encode_table
from strom.coordinator.placement import leaders
from strom.coordinator.plan import UpdatePlan
from strom.metadata.changes import Delete, Put, Requirement, Update


def register_server(catalog: Catalog, server: ServerEntry) -> UpdatePlan[None]:
    """Register where a tablet server listens."""
    return _register(catalog, keys.server(server.server_id), server, catalog.servers.get(server.server_id))


def register_coordinator(catalog: Catalog, server: ServerEntry) -> UpdatePlan[None]:
    """Register where the coordinator listens."""
    return _register(catalog, keys.COORDINATOR, server, catalog.coordinator)


def _register(catalog: Catalog, key: str, server: ServerEntry, known: ServerEntry | None) -> UpdatePlan[None]:
    if known == server:
        return UpdatePlan(None)
    return UpdatePlan(None, [catalog.unchanged(key)], [Put(key, encode_server(server))])


def reassign_leaders(catalog: Catalog, live_ids: Sequence[int]) -> UpdatePlan[int]:
    """Make exactly these servers lead every bucket and forget the others; returns how many leaders moved.

    A reassigned table or partition gets a higher epoch, so that late messages of its former leader are recognised.
    """
    assert live_ids
    assert not catalog.limits.replicated, "in a cluster leaders are elected, and no server is forgotten"
    requirements: list[Requirement] = []
    gone = sorted(catalog.servers.keys() - set(live_ids))
    updates: list[Update] = [Delete(keys.server(server_id)) for server_id in gone]
    for table in catalog.all_tables():
        if not table.partitioned:
            wanted = leaders(table.table_id, table.bucket_count, live_ids)
            if wanted != table.leaders:
                key = keys.table(table.table_id)
                epoch = catalog.leaders_epoch(table.table_id, None) + 1
                requirements.append(catalog.unchanged(key))
                updates.append(Put(key, encode_table(replace(table, leaders=wanted), epoch)))
        for partition in catalog.partitions_of(table.table_id):
            wanted = leaders(partition.partition_id, table.bucket_count, live_ids)
            if wanted != partition.leaders:
                key = keys.partition(table.table_id, partition.partition_id)
                epoch = catalog.leaders_epoch(table.table_id, partition.partition_id) + 1
                requirements.append(catalog.unchanged(key))
                updates.append(Put(key, encode_partition(replace(partition, leaders=wanted), epoch)))
    return UpdatePlan(len(updates) - len(gone), requirements, updates)
