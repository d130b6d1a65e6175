"""The entries of one machine as those of a cluster, and back. Pure.

On one machine the leaders of a table stand in its own entry, and a log counts its epochs itself. In a cluster every
bucket has an entry, and the metadata give out the epochs; so they begin above every epoch that a log has used. Servers
and coordinators register anew. Everything else is the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from strom.coordinator import keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.entries import (
    decode_partition,
    decode_schema,
    decode_table,
    encode_partition,
    encode_table,
)
from strom.coordinator.limits import DecisionLimits
from strom.coordinator.new_copies import FIRST_PLACEMENT, buckets_of, promise_of
from strom.coordinator.tables import DURABILITY, REPLICATION_FACTOR
from strom.errors import InvalidSetting
from strom.metadata.store import Entry, Snapshot
from strom.model.bucket import BucketId
from strom.model.schema import Schema
from strom.model.table import TableEntry
from strom.replication.bucket_entry import Assignment, BucketEntry, encode_bucket
from strom.replication.member import Member, identity_of
from strom.replication.registration import DataDisk
from strom.runtime.units import counted

LEFT_OUT = ("servers/", "alive/", "replicas/", "operations/")
"""Servers register anew, in either kind of installation."""

EMBEDDED_SERVER = 0
NAMES_MAX = 5


def cluster_entries(
    snapshot: Snapshot,
    limits: DecisionLimits,
    *,
    server_id: int,
    disk: DataDisk,
    next_epoch: Callable[[BucketId], int],
) -> dict[str, bytes]:
    """The entries of a cluster in which one server has the only copy of each bucket, in sync.

    ``next_epoch``: above every epoch that the bucket's log has used.
    """
    catalog = Catalog.of(snapshot, limits)
    found = _common(snapshot)
    for table in catalog.all_tables():
        properties = {**table.description.properties, REPLICATION_FACTOR: "1"}
        # As for a table that is created in a cluster: it decides what the identity of a copy is.
        properties.setdefault(DURABILITY, limits.durability_default)
        description = replace(table.description, properties=properties)
        _put(found, snapshot, catalog, replace(table, description=description, leaders=()), ())
        durability = promise_of(catalog, description).durability
        member = Member(server_id, identity_of(disk.disk, FIRST_PLACEMENT, disk.lineage, durability))
        for bucket in buckets_of(catalog, table):
            entry = BucketEntry(
                replicas=(Assignment(server_id, FIRST_PLACEMENT),),
                wanted=(server_id,),
                leader=server_id,
                incarnation=0,  # of no process: the server is elected again when it registers
                epoch=next_epoch(bucket),
                in_sync=(member,),
                drawn=FIRST_PLACEMENT,
            )
            found[keys.replicas(bucket)] = encode_bucket(entry)
    return found


def embedded_entries(snapshot: Snapshot, limits: DecisionLimits, disk: str) -> dict[str, bytes]:
    """The entries of one machine that has the disk of a cluster on which every bucket has a copy in sync."""
    catalog = Catalog.of(snapshot, limits)
    placements_on(catalog, disk)
    found = _common(snapshot)
    for table in catalog.all_tables():
        properties = {**table.description.properties, REPLICATION_FACTOR: "1"}
        leaders = (EMBEDDED_SERVER,) * table.bucket_count
        changed = replace(
            table,
            description=replace(table.description, properties=properties),
            leaders=() if table.partitioned else leaders,
        )
        _put(found, snapshot, catalog, changed, leaders)
    return found


def placements_on(catalog: Catalog, disk: str) -> dict[BucketId, int]:
    """Of every bucket the placement of its copy on a disk; raises unless each has one there that is in sync."""
    found: dict[BucketId, int] = {}
    lacking: list[BucketId] = []
    for table in catalog.all_tables():
        for bucket in buckets_of(catalog, table):
            entry = catalog.replicas.get(bucket)
            members = () if entry is None else entry.in_sync
            member = next((one for one in members if one.identity.disk == disk), None)
            if member is None:
                lacking.append(bucket)
            else:
                found[bucket] = member.identity.placement
    if lacking:
        some = ", ".join(map(str, lacking[:NAMES_MAX])) + (" …" if len(lacking) > NAMES_MAX else "")
        raise InvalidSetting(
            f"this data folder has no copy in sync of {counted(len(lacking), 'bucket')} ({some}): move all of them "
            "to its server first, with a replication factor of 1",
            disk=disk,
        )
    return found


def _common(snapshot: Snapshot) -> dict[str, bytes]:
    return {
        key: entry.value
        for key, entry in snapshot.entries.items()
        if not key.startswith(LEFT_OUT) and key != keys.ACTIVE
    }


def _put(
    found: dict[str, bytes], snapshot: Snapshot, catalog: Catalog, table: TableEntry, leaders: tuple[int, ...]
) -> None:
    """Put a table that was translated, and its partitions with these leaders; the epochs of both count on."""
    key = keys.table(table.table_id)
    led = decode_table(key, snapshot.entries[key].value, _older_schemas(snapshot, catalog, table))
    found[key] = encode_table(table, led.epoch + 1)
    for partition in catalog.partitions_of(table.table_id):
        key = keys.partition(table.table_id, partition.partition_id)
        epoch = decode_partition(key, snapshot.entries[key].value).epoch
        found[key] = encode_partition(replace(partition, leaders=leaders), epoch + 1)


def _older_schemas(snapshot: Snapshot, catalog: Catalog, table: TableEntry) -> dict[int, Schema]:
    found = {}
    for number in catalog.older_schema_ids(table.table_id):
        key = keys.schema(table.table_id, number)
        found[number] = decode_schema(key, snapshot.entries[key].value)
    return found


def at_version(entries: Mapping[str, bytes], version: int) -> dict[str, Entry]:
    """Entries as a store holds them that begins with them."""
    return {key: Entry(value, version) for key, value in entries.items()}


def kinds(entries: Mapping[str, bytes]) -> Iterator[tuple[str, int]]:
    """How many entries there are of each kind that people know."""
    for kind, title in (("databases", "database"), ("tables", "table"), ("partitions", "partition")):
        yield title, sum(key.startswith(f"{kind}/") for key in entries)
