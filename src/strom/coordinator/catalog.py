"""The catalog: an immutable view of the metadata, in the words of the model.

A new catalog is built from the one before it and the entries that changed. It shares everything else, so that a new
table costs the same among ten and among ten thousand, and an older catalog stays valid.

Invariants, checked when a catalog is built:
    1. Every name points to a table that has this name, and every table is listed under its name.
    2. Every partition belongs to a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TypeVar

from strom.coordinator import entries, keys
from strom.coordinator.entries import CoordinatorEntry, DatabaseEntry, Led, ListenerAddress, ServerEntry
from strom.coordinator.limits import DecisionLimits
from strom.coordinator.operation_rows import OperationRows
from strom.coordinator.replica_rows import PREFIX, ReplicaRows
from strom.coordinator.sink_rows import SinkRow, decode_sink
from strom.coordinator.touched import Changed, ChangedEntries, Touched
from strom.errors import DatabaseNotFound, MetadataCorrupt, PartitionNotFound, TableNotFound
from strom.metadata.changes import Absent, VersionIs
from strom.metadata.entry_map import EntryMap
from strom.metadata.sharing_map import SharingMap
from strom.metadata.store import Delta, Entry, Snapshot
from strom.model.bucket import BucketId
from strom.model.lake.lake_record import LakeRecord
from strom.model.names import nearest
from strom.model.schema import Schema
from strom.model.table import Partition, TableEntry, TablePath
from strom.replication.bucket_entry import BucketEntry
from strom.replication.registration import Registration

__all__ = ["Catalog", "DatabaseEntry", "ListenerAddress", "ServerEntry"]

FIRST_ID = 1

K = TypeVar("K", bound=str | int)
V = TypeVar("V")


class Catalog:
    """Databases, tables, partitions, servers and counters at one version of the metadata."""

    def __init__(self, limits: DecisionLimits) -> None:
        """Use ``of``."""
        self.version = 0
        self.limits = limits
        self._entries = EntryMap()
        """All of them, shared with the store where it has them at hand: there may be a million."""
        self._databases: SharingMap[str, DatabaseEntry] = SharingMap()
        self._ids: SharingMap[str, SharingMap[str, int]] = SharingMap()
        """By database and name."""
        self._name_count = 0
        self._tables: SharingMap[int, Led[TableEntry]] = SharingMap()
        self._schemas: SharingMap[int, Mapping[int, Schema]] = SharingMap()
        self._partitions: SharingMap[int, Led[Partition]] = SharingMap()
        self._partitions_of: SharingMap[int, SharingMap[str, Partition]] = SharingMap()
        self._servers: dict[int, ServerEntry] = {}
        self.registrations: Mapping[int, Registration] = {}
        """What the tablet servers of a cluster said of themselves at their last start, dead or alive, by id."""
        self._counters: SharingMap[str, int] = SharingMap()
        self._sinks: SharingMap[str, SinkRow] = SharingMap()
        self._floors: SharingMap[int, int] = SharingMap()
        self._lakes: SharingMap[int, LakeRecord] = SharingMap()
        self.replicas = ReplicaRows()
        """The copies of every bucket that has an entry, as every bucket of a cluster has."""
        self.operations = OperationRows()
        """What people want of a cluster: tags of servers, a rebalance, and losses that were declared."""
        self.coordinator: ServerEntry | None = None
        """The one that clients call: the only one, or the active one of a cluster."""
        self.active: CoordinatorEntry | None = None
        self.alive: Mapping[int, int] = {}
        """What tablet servers announce: the incarnation of each one's process."""
        self.coordinators: Mapping[str, CoordinatorEntry] = {}
        """The coordinators that are announced, by name."""

    @classmethod
    def of(cls, snapshot: Snapshot, limits: DecisionLimits, server_id: int | None = None) -> Catalog:
        """The catalog of a whole snapshot; ``server_id``: as this tablet server needs it, see ``ReplicaRows``."""
        catalog = cls(limits)
        catalog.version, catalog._entries = snapshot.version, EntryMap.of(snapshot.entries)
        kinds = catalog._entries.kinds()
        put = {key: one for kind, rows in kinds.items() if kind != PREFIX for key, one in rows.each()}
        by_kind = catalog._take_kinds(put, [])
        catalog.replicas = ReplicaRows.of(catalog._entries.of_kind(PREFIX), server_id)
        catalog._check_whole(Touched.of(by_kind, ()))
        return catalog

    def advanced(self, delta: Delta) -> tuple[Catalog, Touched]:
        """The catalog after what happened since this one, and what that touched."""
        assert delta.since == self.version
        catalog = copy(self)
        touched = catalog._take(delta)
        catalog._check_whole(touched)
        return catalog, touched

    def delta_to(self, snapshot: Snapshot) -> Delta:
        """The delta to a later snapshot, found by comparing all entries: for a follower that missed too many deltas."""
        entries = EntryMap.of(snapshot.entries)
        put, gone = entries.newer_than(self._entries), entries.gone_since(self._entries)
        return Delta(self.version, snapshot.version, put, gone, entries)

    # --- databases and tables --------------------------------------------------------------------------------

    def databases(self) -> list[str]:
        """Names of all databases, sorted."""
        return sorted(self._databases)

    def find_database(self, name: str) -> DatabaseEntry | None:
        """The database of this name, or None."""
        return self._databases.get(name)

    def database(self, name: str) -> DatabaseEntry:
        """The database of this name."""
        found = self._databases.get(name)
        if found is None:
            hint = nearest(name, self._databases)
            raise DatabaseNotFound(f"There is no database {name!r}{hint}", database=name)
        return found

    def tables_of(self, database: str) -> list[str]:
        """Names of the tables of a database, sorted."""
        self.database(database)
        return sorted(self._ids.get(database) or ())

    def table_count(self, database: str) -> int:
        """How many tables a database has."""
        return len(self._ids.get(database) or ())

    def all_tables(self) -> list[TableEntry]:
        """Every table, by id."""
        return [self._tables[table_id].value for table_id in sorted(self._tables)]

    def find_table(self, path: TablePath) -> TableEntry | None:
        """The table of this path, or None."""
        ids = self._ids.get(path.database)
        table_id = None if ids is None else ids.get(path.table)
        return None if table_id is None else self._tables[table_id].value

    def table(self, path: TablePath) -> TableEntry:
        """The table of this path. A database that does not exist has no tables; the peer answers the same way."""
        found = self.find_table(path)
        if found is None:
            known = self._ids.get(path.database) or ()
            hint = nearest(path.table, known) if path.database in self._databases else ", nor its database"
            raise TableNotFound(f"There is no table {path}{hint}", table=str(path))
        return found

    def table_by_id(self, table_id: int) -> TableEntry | None:
        """The table with this id, or None."""
        led = self._tables.get(table_id)
        return None if led is None else led.value

    def older_schema_ids(self, table_id: int) -> list[int]:
        """The ids of the schemas that newer ones replaced."""
        return sorted(self._schemas.get(table_id) or ())

    # --- partitions ------------------------------------------------------------------------------------------

    def partitions_of(self, table_id: int) -> list[Partition]:
        """All partitions of a table, by name."""
        found = self._partitions_of.get(table_id)
        return [] if found is None else [found[name] for name in sorted(found)]

    def partition_count(self, table_id: int) -> int:
        """How many partitions a table has."""
        return len(self._partitions_of.get(table_id) or ())

    def find_partition(self, table_id: int, name: str) -> Partition | None:
        """The partition of this name, or None."""
        found = self._partitions_of.get(table_id)
        return None if found is None else found.get(name)

    def partition(self, table: TableEntry, name: str) -> Partition:
        """The partition of this name."""
        found = self.find_partition(table.table_id, name)
        if found is None:
            raise PartitionNotFound(
                f"Table {table.path} has no partition {name!r}", table=str(table.path), partition=name
            )
        return found

    def partition_by_id(self, partition_id: int) -> Partition | None:
        """The partition with this id, or None."""
        led = self._partitions.get(partition_id)
        return None if led is None else led.value

    # --- leaders, servers, counters --------------------------------------------------------------------------

    @property
    def servers(self) -> Mapping[int, ServerEntry]:
        """The tablet servers, by id."""
        return self._servers

    def leader_of(self, bucket: BucketId) -> int | None:
        """The server that leads a bucket; None when the bucket does not exist or has no leader."""
        led = self._led(bucket.table_id, bucket.partition_id)
        if led is None:
            return None
        entry = self.replicas.get(bucket)
        if entry is not None:
            return entry.leader
        leaders = led.value.leaders
        return int(leaders[bucket.bucket]) if 0 <= bucket.bucket < len(leaders) else None

    def leader_epoch_of(self, bucket: BucketId) -> int:
        """The epoch of a bucket's leader; 0 when the bucket does not exist."""
        entry = self.replicas.get(bucket)
        return self.leaders_epoch(bucket.table_id, bucket.partition_id) if entry is None else entry.epoch

    def leaders_epoch(self, table_id: int, partition_id: int | None) -> int:
        """How often the leaders in the entry of a table or partition were reassigned; 0 when it does not exist."""
        led = self._led(table_id, partition_id)
        return 0 if led is None else led.epoch

    def copies_of(self, bucket: BucketId) -> tuple[int, ...]:
        """The servers that have copies of a bucket: of one without an entry its leader."""
        entry = self.replicas.get(bucket)
        if entry is not None:
            return entry.servers
        leader = self.leader_of(bucket)
        return () if leader is None else (leader,)

    def versioned_entry(self, bucket: BucketId) -> tuple[BucketEntry, int] | None:
        """The replica entry of a bucket, and the version to require of it."""
        return self.replicas.versioned(bucket)

    def _led(self, table_id: int, partition_id: int | None) -> Led[TableEntry] | Led[Partition] | None:
        if partition_id is None:
            return self._tables.get(table_id)
        led = self._partitions.get(partition_id)
        return led if led is not None and led.value.table_id == table_id else None

    def next_id(self, counter: str) -> int:
        """The next number a counter gives out."""
        return self._counters.get(counter) or FIRST_ID

    # --- sinks -----------------------------------------------------------------------------------------------

    @property
    def sinks(self) -> Mapping[str, SinkRow]:
        """What every sink decided last, by its name."""
        return self._sinks

    def floor_of(self, table_id: int) -> int:
        """Stages of the table with a deadline up to this time can no longer be decided."""
        return self._floors.get(table_id) or 0

    @property
    def last_decision(self) -> int:
        """The number of the newest decision of any sink; 0 before the first."""
        return self.next_id(keys.DECISION_COUNTER) - FIRST_ID

    def has_bucket(self, bucket: BucketId) -> bool:
        """Whether the bucket's table, and its partition, still exist."""
        table = self.table_by_id(bucket.table_id)
        led = self._led(bucket.table_id, bucket.partition_id)
        return table is not None and led is not None and 0 <= bucket.bucket < table.bucket_count

    def bucket_name(self, bucket: BucketId) -> str:
        """A bucket as people know it: ``shop.orders day=1 bucket 3``."""
        table = self.table_by_id(bucket.table_id)
        if table is None:
            return f"bucket {bucket}"
        part = None if bucket.partition_id is None else self.partition_by_id(bucket.partition_id)
        return " ".join((str(table.path), *([] if part is None else [part.name]), f"bucket {bucket.bucket}"))

    # --- the lake --------------------------------------------------------------------------------------------

    def lake_of(self, table_id: int) -> LakeRecord | None:
        """What the lake holds of a table according to the last report; None before its first round."""
        return self._lakes.get(table_id)

    def lake_keys(self, table_id: int) -> list[str]:
        """The keys of a table's lake record."""
        found: list[str] = []
        while (key := keys.lake(table_id, len(found))) in self._entries:
            found.append(key)
        return found

    # --- for plans -------------------------------------------------------------------------------------------

    def unchanged(self, key: str) -> VersionIs | Absent:
        """The requirement that an entry is still the one this catalog was made from."""
        version = self._entries.version_of(key)
        return Absent(key) if version is None else VersionIs(key, version)

    # --- making ----------------------------------------------------------------------------------------------

    def _take(self, delta: Delta) -> Touched:
        """Bring every part up to date with the changed entries, and return what they touched.

        Only while this catalog is being built.
        """
        there = [key for key in delta.gone if key in self._entries]
        replicas = ChangedEntries(
            {key: entry for key, entry in delta.put.items() if key.startswith(PREFIX)},
            [key for key in there if key.startswith(PREFIX)],
        )
        self.version = delta.version
        self._entries = EntryMap.of(delta.entries or self._entries.changed(delta.put, there))
        by_kind = self._take_kinds(
            {key: entry for key, entry in delta.put.items() if not key.startswith(PREFIX)},
            [key for key in there if not key.startswith(PREFIX)],
        )
        self.replicas, concerned = self.replicas.changed(self._entries.of_kind(PREFIX), replicas)
        return Touched.of(by_kind, concerned)

    def _take_kinds(self, put: Mapping[str, Entry], gone: Sequence[str]) -> Mapping[str, Changed]:
        """Bring every part but that of the buckets up to date; return the changes by kind."""
        by_kind: dict[str, Changed] = {}
        for key in gone:
            by_kind.setdefault(key.partition("/")[0], Changed({}, [])).gone.append(key)
        for key, entry in put.items():
            by_kind.setdefault(key.partition("/")[0], Changed({}, [])).put[key] = entry.value
        # Schemas before tables, because tables are built from them.
        takers = {
            "databases": self._take_databases,
            "names": self._take_names,
            "schemas": self._take_schemas,
            "tables": self._take_tables,
            "partitions": self._take_partitions,
            "servers": self._take_servers,
            keys.ACTIVE: self._take_active,
            "alive": self._take_alive,
            "counters": self._take_counters,
            "sinks": self._take_sinks,
            "floors": self._take_floors,
            "lake": self._take_lakes,
            "operations": self._take_operations,
        }
        for kind, take in takers.items():
            if kind in by_kind:
                take(by_kind[kind])
        return by_kind

    def _take_databases(self, changed: Changed) -> None:
        found = [entries.decode_database(key, value) for key, value in changed.put.items()]
        self._databases = self._databases.changed(
            {one.name: one for one in found}, [key.split("/")[1] for key in changed.gone]
        )

    def _take_names(self, changed: Changed) -> None:
        put: dict[str, dict[str, int]] = {}
        gone: dict[str, list[str]] = {}
        for key in changed.gone:
            _, database, table = key.split("/")
            gone.setdefault(database, []).append(table)
        for key, value in changed.put.items():
            _, database, table = key.split("/")
            put.setdefault(database, {})[table] = entries.decode_number(key, value)
        before = self._ids
        self._ids = _nested(self._ids, put, gone)
        for database in {*put, *gone}:
            self._name_count += len(self._ids.get(database) or ()) - len(before.get(database) or ())

    def _take_schemas(self, changed: Changed) -> None:
        table_ids = {entries.id_in(key, 1) for key in (*changed.gone, *changed.put)}
        schemas = {table_id: dict(self._schemas.get(table_id) or {}) for table_id in table_ids}
        for key in changed.gone:
            del schemas[entries.id_in(key, 1)][entries.id_in(key, 2)]
        for key, value in changed.put.items():
            schema = entries.decode_schema(key, value)
            schemas[entries.id_in(key, 1)][schema.schema_id] = schema
        self._schemas = self._schemas.changed(
            {table_id: found for table_id, found in schemas.items() if found},
            [table_id for table_id, found in schemas.items() if not found],
        )

    def _take_tables(self, changed: Changed) -> None:
        put = {}
        for key, value in changed.put.items():
            table_id = entries.id_in(key, 1)
            put[table_id] = entries.decode_table(key, value, self._schemas.get(table_id) or {})
        self._tables = self._tables.changed(put, [entries.id_in(key, 1) for key in changed.gone])

    def _take_partitions(self, changed: Changed) -> None:
        by_name: dict[int, dict[str, Partition]] = {}
        gone: dict[int, list[str]] = {}
        put = {}
        for key in changed.gone:
            partition = self._partitions[entries.id_in(key, 2)].value
            gone.setdefault(partition.table_id, []).append(partition.name)
        for key, value in changed.put.items():
            led = entries.decode_partition(key, value)
            put[led.value.partition_id] = led
            by_name.setdefault(led.value.table_id, {})[led.value.name] = led.value
        self._partitions = self._partitions.changed(put, [entries.id_in(key, 2) for key in changed.gone])
        self._partitions_of = _nested(self._partitions_of, by_name, gone)

    def _take_servers(self, changed: Changed) -> None:
        self._servers = dict(self._servers)
        for key in changed.gone:
            if key == keys.COORDINATOR:
                self.coordinator = None
            else:
                del self._servers[entries.id_in(key, 1)]
        for key, value in changed.put.items():
            server = entries.decode_server(key, value)
            if key == keys.COORDINATOR:
                self.coordinator = server
            elif entries.id_in(key, 1) == server.server_id:
                self._servers[server.server_id] = server
            else:
                raise MetadataCorrupt(f"{key} holds server {server.server_id}", key=key)
        found = ((server_id, server.registration) for server_id, server in self._servers.items())
        self.registrations = {server_id: one for server_id, one in found if one is not None}

    def _take_active(self, changed: Changed) -> None:
        found = changed.put.get(keys.ACTIVE)
        self.active = None if found is None else entries.decode_coordinator(keys.ACTIVE, found)
        self.coordinator = None if self.active is None else ServerEntry(0, self.active.listeners)

    def _take_alive(self, changed: Changed) -> None:
        alive, coordinators = dict(self.alive), dict(self.coordinators)
        for key in (*changed.gone, *changed.put):
            name = key.split("/")[1]
            value = changed.put.get(key)
            if name.startswith(keys.ALIVE_COORDINATOR):
                coordinators.pop(name.removeprefix(keys.ALIVE_COORDINATOR), None)
                if value is not None:
                    one = entries.decode_coordinator(key, value)
                    coordinators[one.name] = one
            else:
                alive.pop(entries.id_in(key, 1), None)
                if value is not None:
                    alive[entries.id_in(key, 1)] = entries.decode_number(key, value)
        self.alive, self.coordinators = alive, coordinators

    def _take_counters(self, changed: Changed) -> None:
        put = {key: entries.decode_number(key, value) for key, value in changed.put.items()}
        self._counters = self._counters.changed(put, changed.gone)

    def _take_sinks(self, changed: Changed) -> None:
        gone = set(changed.gone)
        names = [name for name in self._sinks if keys.sink(name) in gone] if gone else []
        put = {}
        for key, value in changed.put.items():
            row = decode_sink(key, value)
            if keys.sink(row.name) != key:
                raise MetadataCorrupt(f"{key} holds sink {row.name!r}", key=key)
            put[row.name] = row
        self._sinks = self._sinks.changed(put, names)

    def _take_floors(self, changed: Changed) -> None:
        put = {entries.id_in(key, 1): entries.decode_number(key, value) for key, value in changed.put.items()}
        self._floors = self._floors.changed(put, [entries.id_in(key, 1) for key in changed.gone])

    def _take_lakes(self, changed: Changed) -> None:
        put, gone = {}, []
        for table_id in {entries.id_in(key, 1) for key in (*changed.gone, *changed.put)}:
            pieces = self.lake_keys(table_id)
            if pieces:
                content = b"".join(self._entries[key].value for key in pieces)
                put[table_id] = entries.decode_lake(pieces[0], content)
            else:
                gone.append(table_id)
        self._lakes = self._lakes.changed(put, gone)

    def _take_operations(self, changed: Changed) -> None:
        self.operations = self.operations.changed(changed)

    def _check_whole(self, touched: Touched) -> None:
        """Check the invariants of what was touched; the rest held before."""
        for database, name in touched.names:
            ids = self._ids.get(database)
            table_id = None if ids is None else ids.get(name)
            led = None if table_id is None else self._tables.get(table_id)
            if table_id is not None and (led is None or led.value.path != TablePath(database, name)):
                raise MetadataCorrupt(
                    f"names/{database}/{name} names table {table_id}, which has another name",
                    key=f"{database}/{name}",
                )
        for table_id in touched.tables:
            led = self._tables.get(table_id)
            if led is not None and self.find_table(led.value.path) is not led.value:
                raise MetadataCorrupt(f"table {table_id} is not listed under its own name", key="names")
            if led is None and table_id in self._partitions_of:
                raise MetadataCorrupt("a partition belongs to no table", key="partitions")
        for table_id in {one.table_id for one in touched.partitions}:
            if table_id in self._partitions_of and table_id not in self._tables:
                raise MetadataCorrupt("a partition belongs to no table", key="partitions")
        if self._name_count != len(self._tables):
            raise MetadataCorrupt("a table has no name", key="names")


def _nested(
    maps: SharingMap[K, SharingMap[str, V]], put: Mapping[K, Mapping[str, V]], gone: Mapping[K, Sequence[str]]
) -> SharingMap[K, SharingMap[str, V]]:
    """Apply changes to a map of maps; an inner map that becomes empty is removed."""
    changed: dict[K, SharingMap[str, V]] = {}
    for key in (*put, *(key for key in gone if key not in put)):
        changed[key] = (maps.get(key) or SharingMap()).changed(put.get(key, {}), gone.get(key, ()))
    return maps.changed(
        {key: one for key, one in changed.items() if one}, [key for key, one in changed.items() if not one]
    )
