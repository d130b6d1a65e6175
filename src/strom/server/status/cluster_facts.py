"""The state of a cluster, for people: its coordinators, its servers, and what its buckets lack. Plain data.

It costs what is lacking, not what there is: a cluster of a million buckets is described as quickly as a small one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from strom.coordinator.catalog import Catalog, ListenerAddress
from strom.coordinator.liveness import Gone
from strom.coordinator.new_copies import promise_of
from strom.model.bucket import BucketId
from strom.replication.bucket_entry import BucketEntry
from strom.replication.elections import has_leader
from strom.replication.member import CopyPromise

LISTENER_HIDDEN = "INNER"
"""The listener that only servers use."""
NAMED_MAX = 5
"""Buckets that are named of each kind; ``strom cluster buckets --lacking`` has all of them."""
LACKS = ("without_leader", "under_min_insync", "under_replicated", "moving", "losses")
NOBODY_GONE: Mapping[int, Gone] = {}


def cluster_facts(
    catalog: Catalog,
    cluster_id: str,
    alive: Collection[int],
    gone: Mapping[int, Gone] = NOBODY_GONE,
) -> dict[str, Any]:
    """``alive``: the tablet servers that answer; ``gone``: what is known of the others."""
    counts, named = _buckets(catalog, alive)
    return {
        "id": cluster_id,
        "coordinators": _coordinators(catalog),
        "servers": _servers(catalog, alive, gone),
        "buckets": counts,
        "lacking": named,
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


def _servers(catalog: Catalog, alive: Collection[int], gone: Mapping[int, Gone]) -> list[dict[str, Any]]:
    return [
        {
            "id": server_id,
            "rack": registration.rack,
            "address": _address(catalog.servers[server_id].listeners),
            "alive": server_id in alive,
            "tag": catalog.operations.tags.get(server_id),
            "leads": catalog.replicas.leader_count(server_id),
            "copies": catalog.replicas.copy_count(server_id),
            "disks": len(registration.disks),
            **({} if server_id not in gone else gone[server_id]._asdict()),
        }
        for server_id, registration in sorted(catalog.registrations.items())
    ]


def _buckets(catalog: Catalog, alive: Collection[int]) -> tuple[dict[str, int], dict[str, list[str]]]:
    """How many there are and how many lack something; and the names of some that do."""
    counts = {"all": len(catalog.replicas), **dict.fromkeys(LACKS, 0)}
    named: dict[str, list[str]] = {}
    promises: dict[int, CopyPromise | None] = {}
    for bucket in _suspects(catalog, alive):
        entry = catalog.replicas.get(bucket)
        if entry is None:
            continue
        if bucket.table_id not in promises:
            table = catalog.table_by_id(bucket.table_id)
            promises[bucket.table_id] = None if table is None else promise_of(catalog, table.description)
        for kind in _lacks(entry, catalog, alive, promises[bucket.table_id]):
            counts[kind] += 1
            if len(named.setdefault(kind, [])) < NAMED_MAX:
                named[kind].append(catalog.bucket_name(bucket))
    return counts, named


def _suspects(catalog: Catalog, alive: Collection[int]) -> Iterable[BucketId]:
    """All buckets that can lack something: by their entries, or because of servers that are gone or were restarted."""
    rows = catalog.replicas
    found = dict.fromkeys(rows.lacking())
    for server_id in {*catalog.servers, *catalog.registrations} - set(alive):
        found.update(dict.fromkeys(rows.on(server_id)))
    for server_id, registration in catalog.registrations.items():
        found.update(dict.fromkeys(rows.led_by_former(server_id, registration.incarnation)))
    return found


def _lacks(
    entry: BucketEntry, catalog: Catalog, alive: Collection[int], promise: CopyPromise | None
) -> list[str]:
    there = sum(member.server_id in alive for member in entry.in_sync)
    found = {
        "without_leader": not has_leader(entry, catalog.registrations, alive),
        "under_min_insync": promise is not None and there < promise.min_insync,
        "under_replicated": there < len(entry.wanted),
        "moving": entry.moving,
        "losses": entry.losses > 0,
    }
    return [kind for kind, lacks in found.items() if lacks]


def _address(listeners: Mapping[str, ListenerAddress]) -> str:
    shown = [at for name, at in listeners.items() if name != LISTENER_HIDDEN]
    return ", ".join(f"{one.host}:{one.port}" for one in shown)
