"""What a primary-key bucket knows about its table: columns, key, changelog, engine, indexes.

Immutable. Altering the table (adding a column or an index) makes a new definition; columns are only ever added at the
end, so a position means the same column in every schema that has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import pyarrow as pa

from strom.errors import SchemaNotFound
from strom.model.key_properties import CHANGELOG_IMAGE, indexes_of
from strom.model.schema import Schema
from strom.model.table import TableEntry

ChangelogImage = Literal["FULL", "WAL"]

PREFIX_INDEX = "$prefix"
"""The name under which the lists by bucket key are kept, for lookups by a prefix of the primary key."""


@dataclass(frozen=True)
class KeyDefinition:
    """A primary-key table, as one of its buckets sees it."""

    schemas: tuple[Schema, ...]
    """All versions, oldest first."""
    key: tuple[int, ...]
    """Positions of the key columns that tell rows of one bucket apart: all but the partition columns."""
    image: ChangelogImage = "FULL"
    prefix: tuple[int, ...] = ()
    """Positions of the bucket key if it is a proper part of the key; lookups by it are then served."""
    indexes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, table: TableEntry) -> KeyDefinition:
        """From the catalog's table."""
        description, schema = table.description, table.schema
        partition = set(description.partition_keys)
        key = tuple(schema.position(name) for name in schema.primary_key if name not in partition)
        bucket_key = tuple(schema.position(name) for name in description.bucket_key)
        properties = dict(description.properties)
        return cls(
            schemas=table.schemas,
            key=key,
            image="WAL" if properties.get(CHANGELOG_IMAGE, "FULL").upper() == "WAL" else "FULL",
            prefix=bucket_key if set(bucket_key) < set(key) else (),
            indexes={
                name: tuple(schema.position(column) for column in columns)
                for name, columns in indexes_of(properties, schema).items()
            },
            properties=properties,
        )

    @property
    def schema(self) -> Schema:
        """The newest schema."""
        return self.schemas[-1]

    @cached_property
    def arrow(self) -> pa.Schema:
        """The newest schema, for Arrow."""
        return self.schema.to_arrow()

    def schema_by_id(self, schema_id: int) -> Schema:
        """One version of the schema."""
        for schema in reversed(self.schemas):
            if schema.schema_id == schema_id:
                return schema
        raise SchemaNotFound(f"the table has no schema {schema_id}", schema_id=schema_id)

    @cached_property
    def lists(self) -> Mapping[str, tuple[int, ...]]:
        """Every index kept as lists of rows: the secondary ones, and the one for prefixes."""
        return {**self.indexes, PREFIX_INDEX: self.prefix} if self.prefix else dict(self.indexes)
