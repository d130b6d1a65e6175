"""The catalog's values as JSON, both ways. Reading checks them: the metadata may be older, or damaged.

The formats are in docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from strom.errors import MetadataCorrupt, StromError
from strom.model.document import Document, canonical
from strom.model.lake.lake_record import LakeRecord
from strom.model.schema import SCHEMA_ID_MAX, Schema
from strom.model.table import Partition, TableDescription, TableEntry, TablePath
from strom.replication.registration import DataDisk, Registration

T = TypeVar("T", TableEntry, Partition)

ID_MAX = 2**63 - 1
TIME_MAX = 2**63 - 1
EPOCH_MAX = 2**31 - 1
DISKS_MAX = 64


@dataclass(frozen=True, slots=True)
class DatabaseEntry:
    """A database."""

    name: str
    created_ms: int
    modified_ms: int
    comment: str | None = None
    custom_properties: Mapping[str, str] = field(default_factory=dict)


class ListenerAddress(NamedTuple):
    """Where a server listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """A server and its advertised addresses, by listener name."""

    server_id: int
    listeners: Mapping[str, ListenerAddress]
    registration: Registration | None = None
    """Of a tablet server in a cluster."""


@dataclass(frozen=True, slots=True)
class CoordinatorEntry:
    """A coordinator of a cluster and its addresses; ``number`` counts who was active, 0 for one that stands by."""

    name: str
    """Drawn at each start of a process, so that it tells this one from an earlier one in the same place."""
    number: int
    listeners: Mapping[str, ListenerAddress]


class Led(NamedTuple, Generic[T]):
    """Something with buckets (a table or a partition) and the epoch of its leaders."""

    value: T
    epoch: int


# --- writing -------------------------------------------------------------------------------------------------


def encode_database(database: DatabaseEntry) -> bytes:
    """The value under ``databases/``."""
    return _json(
        comment=database.comment,
        custom_properties=dict(database.custom_properties),
        created=database.created_ms,
        modified=database.modified_ms,
    )


def encode_table(table: TableEntry, epoch: int) -> bytes:
    """The value under ``tables/``. Older schemas have entries of their own."""
    return _json(
        database=table.path.database,
        table=table.path.table,
        description=table.description.to_json(),
        schema_id=table.schema.schema_id,
        created=table.created_ms,
        modified=table.modified_ms,
        leaders=list(table.leaders),
        epoch=epoch,
    )


def encode_schema(schema: Schema) -> bytes:
    """The value under ``schemas/``."""
    return canonical(schema.to_json()).encode()


def encode_partition(partition: Partition, epoch: int) -> bytes:
    """The value under ``partitions/``."""
    return _json(
        name=partition.name,
        values=list(partition.values),
        created=partition.created_ms,
        leaders=list(partition.leaders),
        epoch=epoch,
    )


def encode_server(server: ServerEntry) -> bytes:
    """The value under ``servers/``."""
    found = server.registration
    registration = found and {
        "incarnation": found.incarnation,
        "disks": [{"id": one.disk, "lineage": one.lineage} for one in found.disks],
        "rack": found.rack,
    }
    return _json(id=server.server_id, listeners=_addresses(server.listeners), registration=registration)


def encode_coordinator(coordinator: CoordinatorEntry) -> bytes:
    """The value under ``coordinator``, and what a coordinator announces."""
    return _json(
        name=coordinator.name, number=coordinator.number, listeners=_addresses(coordinator.listeners)
    )


def _addresses(listeners: Mapping[str, ListenerAddress]) -> dict[str, object]:
    return {name: {"host": host, "port": port} for name, (host, port) in listeners.items()}


def encode_number(number: int) -> bytes:
    """The value under ``names/`` and ``counters/``."""
    return b"%d" % number


def _json(**values: object) -> bytes:
    return canonical({key: value for key, value in values.items() if value is not None}).encode()


# --- reading -------------------------------------------------------------------------------------------------


def decode_database(key: str, value: bytes) -> DatabaseEntry:
    """Decode a database."""
    doc = Document.parse(value, key, MetadataCorrupt)
    return DatabaseEntry(
        name=key.split("/")[1],
        created_ms=_time(doc, "created"),
        modified_ms=_time(doc, "modified"),
        comment=doc.text_or_none("comment"),
        custom_properties=doc.mapping("custom_properties"),
    )


def decode_table(key: str, value: bytes, older: Mapping[int, Schema]) -> Led[TableEntry]:
    """Decode a table, given its older schemas by id."""
    doc = Document.parse(value, key, MetadataCorrupt)
    schema_id = doc.integer("schema_id", low=1, high=SCHEMA_ID_MAX)
    if set(older) != set(range(1, schema_id)):
        doc.refuse("schema_id", f"is {schema_id}, but the older schemas are {sorted(older)}")
    try:
        description = TableDescription.from_json(doc.raw("description"), schema_id)
    except StromError as error:
        raise MetadataCorrupt(f"{key}: {error.message}", key=key) from error
    if description.bucket_count is None:
        doc.refuse("description", "has no bucket count")
    table = TableEntry(
        table_id=id_in(key, 1),
        path=TablePath(doc.text("database"), doc.text("table")),
        description=description,
        schemas=(*(older[number] for number in range(1, schema_id)), description.schema),
        created_ms=_time(doc, "created"),
        modified_ms=_time(doc, "modified"),
        leaders=_leaders(doc),
    )
    return Led(table, doc.integer("epoch", low=0, high=EPOCH_MAX))


def decode_schema(key: str, value: bytes) -> Schema:
    """Decode an older schema."""
    doc = Document.parse(value, key, MetadataCorrupt)
    try:
        return Schema.from_json(doc.value, id_in(key, 2))
    except StromError as error:
        raise MetadataCorrupt(f"{key}: {error.message}", key=key) from error


def decode_partition(key: str, value: bytes) -> Led[Partition]:
    """Decode a partition."""
    doc = Document.parse(value, key, MetadataCorrupt)
    partition = Partition(
        partition_id=id_in(key, 2),
        table_id=id_in(key, 1),
        name=doc.text("name"),
        values=doc.texts("values"),
        leaders=_leaders(doc),
        created_ms=_time(doc, "created"),
    )
    return Led(partition, doc.integer("epoch", low=0, high=EPOCH_MAX))


def decode_server(key: str, value: bytes) -> ServerEntry:
    """Decode a server."""
    doc = Document.parse(value, key, MetadataCorrupt)
    server_id = doc.integer("id", low=0)
    registration = doc.document("registration") if doc.has("registration") else None
    return ServerEntry(
        server_id=server_id,
        listeners=_listeners(doc),
        registration=None if registration is None else _registration(server_id, registration),
    )


def _registration(server_id: int, doc: Document) -> Registration:
    disks = tuple(
        DataDisk(one.text("id"), one.integer("lineage", low=0, high=ID_MAX)) for one in doc.documents("disks")
    )
    if not 0 < len({one.disk for one in disks}) == len(disks) <= DISKS_MAX:
        doc.refuse("disks", f"must name 1 to {DISKS_MAX} disks, each once")
    incarnation = doc.integer("incarnation", low=0, high=ID_MAX)
    return Registration(server_id, incarnation, disks, doc.text("rack"))


def decode_coordinator(key: str, value: bytes) -> CoordinatorEntry:
    """Decode the active coordinator, or one that was announced."""
    doc = Document.parse(value, key, MetadataCorrupt)
    return CoordinatorEntry(
        name=doc.text("name"), number=doc.integer("number", low=0, high=ID_MAX), listeners=_listeners(doc)
    )


def _listeners(doc: Document) -> dict[str, ListenerAddress]:
    listeners = doc.document("listeners")
    return {
        name: ListenerAddress(
            listeners.document(name).text("host"), listeners.document(name).integer("port", low=0)
        )
        for name in listeners.value
    }


def decode_number(key: str, value: bytes) -> int:
    """Decode an id, or a counter's next one."""
    if not value.isdigit() or int(value) > ID_MAX:
        raise MetadataCorrupt(f"{key} is {value[:40]!r}, not a number", key=key)
    return int(value)


def decode_lake(key: str, value: bytes) -> LakeRecord:
    """Decode a lake record."""
    try:
        record = LakeRecord.from_json(value, MetadataCorrupt)
    except MetadataCorrupt as error:
        raise MetadataCorrupt(f"{key}: {error.message}", key=key) from error
    if record.table_id != id_in(key, 1):
        raise MetadataCorrupt(f"{key} holds the record of table {record.table_id}", key=key)
    return record


def id_in(key: str, position: int) -> int:
    """The number at some position of a key."""
    return decode_number(key, key.split("/")[position].encode())


def _time(doc: Document, key: str) -> int:
    return doc.integer(key, low=0, high=TIME_MAX)


def _leaders(doc: Document) -> tuple[int, ...]:
    found = doc.raw("leaders")
    if not isinstance(found, list) or not all(isinstance(leader, int) for leader in found):
        doc.refuse("leaders", "must be a list of server ids")
    return tuple(found)
