"""What is known: an immutable view of the metadata, in the words of the model.

A new catalog is made from a snapshot and the catalog before it. Only entries that changed are read again, so that
a new partition among thousands costs about a millisecond, and whoever holds an older catalog keeps it whole.

Invariants, checked when a catalog is made:
    1. Every name points to a table that says it has this name, and every table has its name.
    2. Every partition belongs to a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strom.coordinator import entries, keys
from strom.coordinator.entries import Address, Database, Led, Server
from strom.coordinator.limits import Limits
from strom.coordinator.sink_rows import SinkRow, decode_sink
from strom.errors import DatabaseNotFound, MetadataCorrupt, PartitionNotFound, TableNotFound
from strom.metadata.changes import Absent, VersionIs
from strom.metadata.store import Entry, Snapshot
from strom.model.bucket import BucketId
from strom.model.lake_record import LakeRecord
from strom.model.names import nearest
from strom.model.schema import Schema
from strom.model.table import Partition, Table, TablePath

__all__ = ["Address", "Catalog", "Database", "Server"]

FIRST_ID = 1


class Catalog:
    """Databases, tables, partitions, servers and counters at one version of the metadata."""

    def __init__(self, snapshot: Snapshot, limits: Limits, before: Catalog | None = None) -> None:
        self.version = snapshot.version
        self.limits = limits
        self._entries = snapshot.entries
        self._databases: dict[str, Database] = {} if before is None else dict(before._databases)
        self._ids: dict[TablePath, int] = {} if before is None else dict(before._ids)
        self._tables: dict[int, Led[Table]] = {} if before is None else dict(before._tables)
        self._schemas: dict[int, dict[int, Schema]] = {} if before is None else dict(before._schemas)
        self._partitions: dict[int, Led[Partition]] = {} if before is None else dict(before._partitions)
        self._partitions_of: dict[int, dict[str, Partition]] = (
            {} if before is None else dict(before._partitions_of)
        )
        self._servers: dict[int, Server] = {} if before is None else dict(before._servers)
        self._counters: dict[str, int] = {} if before is None else dict(before._counters)
        self._sinks: dict[str, SinkRow] = {} if before is None else dict(before._sinks)
        self._floors: dict[int, int] = {} if before is None else dict(before._floors)
        self._lakes: dict[int, LakeRecord] = {} if before is None else dict(before._lakes)
        self.coordinator: Server | None = None if before is None else before.coordinator
        self._take_changes({} if before is None else before._entries)
        self._check_whole()

    def advanced(self, snapshot: Snapshot) -> Catalog:
        """The catalog of a newer snapshot."""
        return Catalog(snapshot, self.limits, self)

    # --- databases and tables --------------------------------------------------------------------------------

    def databases(self) -> list[str]:
        """Names of all databases, sorted."""
        return sorted(self._databases)

    def find_database(self, name: str) -> Database | None:
        """The database of this name, or None."""
        return self._databases.get(name)

    def database(self, name: str) -> Database:
        """The database of this name."""
        found = self._databases.get(name)
        if found is None:
            hint = nearest(name, self._databases)
            raise DatabaseNotFound(f"There is no database {name!r}{hint}", database=name)
        return found

    def tables_of(self, database: str) -> list[str]:
        """Names of the tables of a database, sorted."""
        self.database(database)
        return sorted(path.table for path in self._ids if path.database == database)

    def all_tables(self) -> list[Table]:
        """Every table, by id."""
        return [self._tables[table_id].value for table_id in sorted(self._tables)]

    def find_table(self, path: TablePath) -> Table | None:
        """The table of this path, or None."""
        table_id = self._ids.get(path)
        return None if table_id is None else self._tables[table_id].value

    def table(self, path: TablePath) -> Table:
        """The table of this path. In a database that does not exist there is no table: the peer's answer too."""
        found = self.find_table(path)
        if found is None:
            known = [other.table for other in self._ids if other.database == path.database]
            hint = nearest(path.table, known) if path.database in self._databases else ", nor its database"
            raise TableNotFound(f"There is no table {path}{hint}", table=str(path))
        return found

    def table_by_id(self, table_id: int) -> Table | None:
        """The table with this id, or None."""
        led = self._tables.get(table_id)
        return None if led is None else led.value

    def older_schema_ids(self, table_id: int) -> list[int]:
        """The ids of the schemas that later ones replaced."""
        return sorted(self._schemas.get(table_id, {}))

    # --- partitions ------------------------------------------------------------------------------------------

    def partitions_of(self, table_id: int) -> list[Partition]:
        """All partitions of a table, by name."""
        found = self._partitions_of.get(table_id, {})
        return [found[name] for name in sorted(found)]

    def partition_count(self, table_id: int) -> int:
        """How many partitions a table has."""
        return len(self._partitions_of.get(table_id, {}))

    def find_partition(self, table_id: int, name: str) -> Partition | None:
        """The partition of this name, or None."""
        return self._partitions_of.get(table_id, {}).get(name)

    def partition(self, table: Table, name: str) -> Partition:
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
    def servers(self) -> Mapping[int, Server]:
        """The tablet servers, by id."""
        return self._servers

    def leader_of(self, bucket: BucketId) -> int | None:
        """The server that leads a bucket; None when there is no such bucket, or nobody leads it."""
        led = self._led(bucket.table_id, bucket.partition_id)
        if led is None or not 0 <= bucket.bucket < len(led.value.leaders):
            return None
        return int(led.value.leaders[bucket.bucket])

    def leader_epoch_of(self, table_id: int, partition_id: int | None) -> int:
        """How many times the leaders of a table or partition were assigned anew; 0 when it does not exist."""
        led = self._led(table_id, partition_id)
        return 0 if led is None else led.epoch

    def _led(self, table_id: int, partition_id: int | None) -> Led[Table] | Led[Partition] | None:
        if partition_id is None:
            return self._tables.get(table_id)
        led = self._partitions.get(partition_id)
        return led if led is not None and led.value.table_id == table_id else None

    def next_id(self, counter: str) -> int:
        """The next number a counter gives out."""
        return self._counters.get(counter, FIRST_ID)

    # --- sinks -----------------------------------------------------------------------------------------------

    @property
    def sinks(self) -> Mapping[str, SinkRow]:
        """What every sink decided last, by its name."""
        return self._sinks

    def floor_of(self, table_id: int) -> int:
        """Stages of the table with a deadline up to here cannot be decided any more."""
        return self._floors.get(table_id, 0)

    @property
    def last_decision(self) -> int:
        """The number of the newest decision of any sink; 0 before the first."""
        return self.next_id(keys.DECISION_COUNTER) - FIRST_ID

    def has_bucket(self, bucket: BucketId) -> bool:
        """Whether the bucket's table, and its partition, are still there."""
        table = self.table_by_id(bucket.table_id)
        led = self._led(bucket.table_id, bucket.partition_id)
        return table is not None and led is not None and 0 <= bucket.bucket < table.bucket_count

    # --- the lake --------------------------------------------------------------------------------------------

    def lake_of(self, table_id: int) -> LakeRecord | None:
        """What the lake was last said to hold of a table; None before its first round."""
        return self._lakes.get(table_id)

    def lake_keys(self, table_id: int) -> list[str]:
        """The keys that a table's record takes."""
        found: list[str] = []
        while (key := keys.lake(table_id, len(found))) in self._entries:
            found.append(key)
        return found

    # --- for plans -------------------------------------------------------------------------------------------

    def unchanged(self, key: str) -> VersionIs | Absent:
        """The requirement that an entry still is what this catalog was made from."""
        entry = self._entries.get(key)
        return Absent(key) if entry is None else VersionIs(key, entry.version)

    # --- making ----------------------------------------------------------------------------------------------

    def _take_changes(self, before: Mapping[str, Entry]) -> None:
        """Bring every part from the entries before to the present ones."""
        now = self._entries
        changed = [key for key, entry in now.items() if _differs(before.get(key), entry)]
        gone = list(before.keys() - now.keys()) if len(before) + len(changed) > len(now) else []
        # Schemas before tables, which are made of them; within a kind, what is gone before what is new.
        by_kind: dict[str, tuple[list[str], list[str]]] = {}
        for key in gone:
            by_kind.setdefault(key.partition("/")[0], ([], []))[0].append(key)
        for key in changed:
            by_kind.setdefault(key.partition("/")[0], ([], []))[1].append(key)
        takers = {
            "databases": self._take_databases,
            "names": self._take_names,
            "schemas": self._take_schemas,
            "tables": self._take_tables,
            "partitions": self._take_partitions,
            "servers": self._take_servers,
            "counters": self._take_counters,
            "sinks": self._take_sinks,
            "floors": self._take_floors,
            "lake": self._take_lakes,
        }
        for kind, take in takers.items():
            if kind in by_kind:
                take(*by_kind[kind])

    def _take_databases(self, gone: Iterable[str], changed: Iterable[str]) -> None:
        for key in gone:
            del self._databases[key.split("/")[1]]
        for key in changed:
            database = entries.decode_database(key, self._entries[key].value)
            self._databases[database.name] = database

    def _take_names(self, gone: Iterable[str], changed: Iterable[str]) -> None:
        for key in gone:
            del self._ids[_path_in(key)]
        for key in changed:
            self._ids[_path_in(key)] = entries.decode_number(key, self._entries[key].value)

    def _take_schemas(self, gone: Iterable[str], changed: Iterable[str]) -> None:
        for table_id in {entries.id_in(key, 1) for key in (*gone, *changed)}:
            self._schemas[table_id] = dict(self._schemas.get(table_id, {}))
        for key in gone:
            schemas = self._schemas[entries.id_in(key, 1)]
            del schemas[entries.id_in(key, 2)]
            if not schemas:
                del self._schemas[entries.id_in(key, 1)]
        for key in changed:
            schema = entries.decode_schema(key, self._entries[key].value)
            self._schemas.setdefault(entries.id_in(key, 1), {})[schema.schema_id] = schema

    def _take_tables(self, gone: Iterable[str], changed: Iterable[str]) -> None:
        for key in gone:
            del self._tables[entries.id_in(key, 1)]
        for key in changed:
            table_id = entries.id_in(key, 1)
            older = self._schemas.get(table_id, {})
            self._tables[table_id] = entries.decode_table(key, self._entries[key].value, older)

    def _take_partitions(self, gone: Iterable[str], changed: Iterable[str]) -> None:
        for table_id in {entries.id_in(key, 1) for key in (*gone, *changed)}:
            self._partitions_of[table_id] = dict(self._partitions_of.get(table_id, {}))
        for key in gone:
            partition = self._partitions.pop(entries.id_in(key, 2)).value
            partitions = self._partitions_of[partition.table_id]
            del partitions[partition.name]
            if not partitions:
                del self._partitions_of[partition.table_id]
        for key in changed:
            led = entries.decode_partition(key, self._entries[key].value)
            partition = led.value
            self._partitions[partition.partition_id] = led
            self._partitions_of.setdefault(partition.table_id, {})[partition.name] = partition

    def _take_servers(self, gone: Iterable[str], changed: Iterable[str]) -> None:
        for key in gone:
            if key == keys.COORDINATOR:
                self.coordinator = None
            else:
                del self._servers[entries.id_in(key, 1)]
        for key in changed:
            server = entries.decode_server(key, self._entries[key].value)
            if key == keys.COORDINATOR:
                self.coordinator = server
            elif entries.id_in(key, 1) == server.server_id:
                self._servers[server.server_id] = server
            else:
                raise MetadataCorrupt(f"{key} holds server {server.server_id}", key=key)

    def _take_counters(self, gone: Iterable[str], changed: Iterable[str]) -> None:
        for key in gone:
            del self._counters[key]
        for key in changed:
            self._counters[key] = entries.decode_number(key, self._entries[key].value)

    def _take_sinks(self, gone: Iterable[str], changed: Iterable[str]) -> None:
        if gone := set(gone):
            self._sinks = {name: row for name, row in self._sinks.items() if keys.sink(name) not in gone}
        for key in changed:
            row = decode_sink(key, self._entries[key].value)
            if keys.sink(row.name) != key:
                raise MetadataCorrupt(f"{key} holds sink {row.name!r}", key=key)
            self._sinks[row.name] = row

    def _take_floors(self, gone: Iterable[str], changed: Iterable[str]) -> None:
        for key in gone:
            del self._floors[entries.id_in(key, 1)]
        for key in changed:
            self._floors[entries.id_in(key, 1)] = entries.decode_number(key, self._entries[key].value)

    def _take_lakes(self, gone: Iterable[str], changed: Iterable[str]) -> None:
        for table_id in {entries.id_in(key, 1) for key in (*gone, *changed)}:
            pieces = self.lake_keys(table_id)
            if pieces:
                content = b"".join(self._entries[key].value for key in pieces)
                self._lakes[table_id] = entries.decode_lake(pieces[0], content)
            else:
                self._lakes.pop(table_id, None)

    def _check_whole(self) -> None:
        for path, table_id in self._ids.items():
            led = self._tables.get(table_id)
            if led is None or led.value.path != path:
                raise MetadataCorrupt(
                    f"{keys.name(path)} names table {table_id}, which is not it", key=str(path)
                )
        if len(self._ids) != len(self._tables):
            raise MetadataCorrupt("a table has no name", key="names")
        if not self._partitions_of.keys() <= self._tables.keys():
            raise MetadataCorrupt("a partition belongs to no table", key="partitions")


def _differs(before: Entry | None, now: Entry) -> bool:
    return before is not now and (before is None or before.version != now.version)


def _path_in(key: str) -> TablePath:
    _, database, table = key.split("/")
    return TablePath(database, table)
