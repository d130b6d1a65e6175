"""What a table is: its path, its description, and the table as the catalog knows it.

A description is what a client sends to create a table and what it gets back: the peer's JSON. Every object here is
valid once it exists: key columns exist and have types that can be keys. Properties are checked in ``properties.py``,
because their limits and defaults depend on the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from strom.errors import InvalidTable, SchemaNotFound
from strom.model.data_type import Decimal
from strom.model.document import Document, canonical, encodable
from strom.model.names import check_comment, check_name, nearest
from strom.model.schema import Schema

DEFAULT_DATABASE = "fluss"
BUCKETS_MAX = 2**20
"""The most that a description can state; the server's ``max.bucket.num`` is lower."""
PROPERTIES_MAX = 1000
PROPERTY_LENGTH_MAX = 64 * 1024


class TablePath(NamedTuple):
    """A table's name within its database."""

    database: str
    table: str

    @classmethod
    def parse(cls, text: str, database: str = DEFAULT_DATABASE) -> TablePath:
        """``"db.t"``, or ``"t"`` in the database given."""
        first, dot, second = text.partition(".")
        path = cls(first, second) if dot else cls(database, first)
        path.check()
        return path

    def check(self) -> None:
        """Refuse a path whose names are not allowed."""
        check_name("database", self.database)
        check_name("table", self.table)

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


@dataclass(frozen=True)
class TableDescription:
    """What defines a table: schema, keys, buckets, properties. ``bucket_count`` None: the server chooses."""

    schema: Schema
    partition_keys: tuple[str, ...] = ()
    bucket_key: tuple[str, ...] = ()
    bucket_count: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    custom_properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None

    def __post_init__(self) -> None:
        check_comment(self.comment)
        _check_properties(self.properties)
        _check_properties(self.custom_properties)
        self._check_partition_keys()
        if self.schema.primary_key and not self.bucket_key:
            object.__setattr__(self, "bucket_key", self._physical_key())
        self._check_bucket_key()
        if self.bucket_count is not None and not 1 <= self.bucket_count <= BUCKETS_MAX:
            raise InvalidTable(
                f"A table has at least 1 bucket, not {self.bucket_count}", buckets=self.bucket_count
            )

    @classmethod
    def from_json(cls, json: object, schema_id: int = 1) -> TableDescription:
        """From the peer's JSON, as bytes, text or the object read from them."""
        if isinstance(json, bytes | bytearray | memoryview | str):
            doc = Document.parse(json, "table", InvalidTable)
        else:
            doc = Document(json, "table", InvalidTable)
        if doc.integer("version", low=0, default=1) != 1:
            doc.refuse("version", "must be 1")
        count = doc.integer("bucket_count", low=1, high=BUCKETS_MAX) if doc.has("bucket_count") else None
        return cls(
            schema=Schema.from_json(doc.document("schema"), schema_id),
            partition_keys=doc.texts("partition_key"),
            bucket_key=doc.texts("bucket_key"),
            bucket_count=count,
            properties=doc.mapping("properties"),
            custom_properties=doc.mapping("custom_properties"),
            comment=doc.text_or_none("comment"),
        )

    def to_json(self) -> dict[str, Any]:
        """The peer's JSON form; absent stays absent."""
        json: dict[str, Any] = {
            "version": 1,
            "schema": self.schema.to_json(),
            "partition_key": list(self.partition_keys),
            "bucket_key": list(self.bucket_key),
            "properties": dict(self.properties),
            "custom_properties": dict(self.custom_properties),
        }
        if self.bucket_count is not None:
            json["bucket_count"] = self.bucket_count
        if self.comment is not None:
            json["comment"] = self.comment
        return json

    def to_json_bytes(self) -> bytes:
        """The peer's JSON form on the wire: compact, UTF-8, keys sorted."""
        return canonical(self.to_json()).encode("utf-8")

    @property
    def partitioned(self) -> bool:
        """Whether rows are kept in partitions."""
        return bool(self.partition_keys)

    @property
    def has_primary_key(self) -> bool:
        """Whether this is a primary-key table, not a log table."""
        return bool(self.schema.primary_key)

    def _physical_key(self) -> tuple[str, ...]:
        """The primary key within one partition."""
        return tuple(name for name in self.schema.primary_key if name not in self.partition_keys)

    def _check_partition_keys(self) -> None:
        self._check_key("partition key", self.partition_keys)
        for name in self.partition_keys:
            column = self.schema.column(name)
            if column.type.nested or isinstance(column.type, Decimal):
                raise InvalidTable(f"{column.type} column {name!r} cannot be a partition key", column=name)
            self._check_within_primary_key("Partition key", name)
        if self.has_primary_key and not self._physical_key():
            raise InvalidTable("The primary key needs a column besides the partition keys")

    def _check_bucket_key(self) -> None:
        self._check_key("bucket key", self.bucket_key)
        for name in self.bucket_key:
            column = self.schema.column(name)
            if column.type.nested:
                raise InvalidTable(f"{column.type} column {name!r} cannot be a bucket key", column=name)
            if name in self.partition_keys:
                raise InvalidTable(f"Bucket key {name!r} is a partition key already", column=name)
            self._check_within_primary_key("Bucket key", name)

    def _check_within_primary_key(self, role: str, name: str) -> None:
        key = self.schema.primary_key
        if key and name not in key:
            raise InvalidTable(f"{role} {name!r} must be part of the primary key {list(key)}", column=name)

    def _check_key(self, role: str, names: tuple[str, ...]) -> None:
        if len(set(names)) < len(names):
            raise InvalidTable(f"A column occurs twice in the {role} {list(names)}")
        for name in names:
            if self.schema.find(name) is None:
                hint = nearest(name, self.schema.names)
                raise InvalidTable(f"The {role} names {name!r}, which is not a column{hint}", column=name)


@dataclass(frozen=True)
class TableEntry:
    """A table that exists. ``schemas`` are all versions, oldest first; the description has the newest.

    ``leaders`` has the leading server of each bucket; it is empty for a partitioned table, whose partitions have their
    own leaders.
    """

    table_id: int
    path: TablePath
    description: TableDescription
    schemas: tuple[Schema, ...]
    created_ms: int
    modified_ms: int
    leaders: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert self.schemas
        assert self.schemas[-1] == self.description.schema

    @property
    def schema(self) -> Schema:
        """The newest schema."""
        return self.description.schema

    @property
    def partitioned(self) -> bool:
        """Whether rows are kept in partitions."""
        return self.description.partitioned

    @property
    def bucket_count(self) -> int:
        """Buckets of the table, or of each of its partitions."""
        assert self.description.bucket_count is not None
        return self.description.bucket_count

    def schema_by_id(self, schema_id: int) -> Schema:
        """One version of the schema."""
        schema = self._schema_by_id.get(schema_id)
        if schema is None:
            raise SchemaNotFound(f"Table {self.path} has no schema {schema_id}", schema_id=schema_id)
        return schema

    @cached_property
    def _schema_by_id(self) -> dict[int, Schema]:
        return {schema.schema_id: schema for schema in self.schemas}


@dataclass(frozen=True)
class Partition:
    """A partition that exists. ``name`` is its values, in partition-key order, joined with ``$``."""

    partition_id: int
    table_id: int
    name: str
    values: tuple[str, ...]
    leaders: tuple[int, ...]
    created_ms: int


def _check_properties(properties: Mapping[str, str]) -> None:
    if len(properties) > PROPERTIES_MAX:
        raise InvalidTable(f"A table has at most {PROPERTIES_MAX} properties", found=len(properties))
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidTable(f"Property {name!r} and its value must be text, not {value!r}", property=name)
        if not encodable(name) or not encodable(value):
            raise InvalidTable(f"Property {name[:60]!r} has half a surrogate pair", property=name[:60])
        if not name or len(name) > PROPERTY_LENGTH_MAX or len(value) > PROPERTY_LENGTH_MAX:
            raise InvalidTable(
                f"Property {name[:60]!r} or its value is empty or too long", property=name[:60]
            )
