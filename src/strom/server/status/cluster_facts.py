"""The state of a cluster, for people: its coordinators, its servers, and what its buckets lack. Plain data."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from strom.coordinator.catalog import Catalog, ListenerAddress
from strom.coordinator.new_copies import promise_of
from strom.replication.elections import has_leader
from strom.replication.member import CopyPromise

LISTENER_HIDDEN = "INNER"
"""The listener that only servers use."""


def cluster_facts(catalog: Catalog, cluster_id: str, alive: Collection[int]) -> dict[str, Any]:
    """``alive``: the tablet servers that answer."""
    return {
        "id": cluster_id,
        "coordinators": _coordinators(catalog),
        "servers": _servers(catalog, alive),
        "buckets": _buckets(catalog, alive),
    }


def _coordinators(catalog: Catalog) -> list[dict[str, Any]]:
    active = catalog.active
    found = [
        {
            "address": _address(one.listeners),
            "active": active is not None and one.name == active.name,
            "term": active.number if active is not None and one.name == active.name else None,
        }
        for one in catalog.coordinators.values()
    ]
    return sorted(found, key=lambda one: (not one["active"], one["address"]))


def _servers(catalog: Catalog, alive: Collection[int]) -> list[dict[str, Any]]:
    return [
        {
            "id": server_id,
            "rack": registration.rack,
            "address": _address(catalog.servers[server_id].listeners),
            "alive": server_id in alive,
            "leads": catalog.replicas.leader_count(server_id),
            "copies": catalog.replicas.copy_count(server_id),
            "disks": len(registration.disks),
        }
        for server_id, registration in sorted(catalog.registrations.items())
    ]


def _buckets(catalog: Catalog, alive: Collection[int]) -> dict[str, int]:
    """How many there are, and how many lack something."""
    counts = dict.fromkeys(("all", "under_replicated", "under_min_insync", "without_leader", "moving"), 0)
    promises: dict[int, CopyPromise | None] = {}
    for bucket in catalog.replicas:
        entry = catalog.replicas.get(bucket)
        if entry is None:
            continue
        if bucket.table_id not in promises:
            table = catalog.table_by_id(bucket.table_id)
            promises[bucket.table_id] = None if table is None else promise_of(catalog, table.description)
        promise = promises[bucket.table_id]
        there = sum(member.server_id in alive for member in entry.in_sync)
        counts["all"] += 1
        counts["under_replicated"] += there < len(entry.wanted)
        counts["under_min_insync"] += promise is not None and there < promise.min_insync
        counts["without_leader"] += not has_leader(entry, catalog.registrations, alive)
        counts["moving"] += entry.moving
    return counts


def _address(listeners: Mapping[str, ListenerAddress]) -> str:
    shown = [at for name, at in listeners.items() if name != LISTENER_HIDDEN]
    return ", ".join(f"{one.host}:{one.port}" for one in shown)
