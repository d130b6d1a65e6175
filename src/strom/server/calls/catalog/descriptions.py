"""Tables, partitions and paths as messages show them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from strom.errors import InvalidPartition
from strom.model import properties
from strom.model.table import TableEntry, TablePath
from strom.protocol.messages import metadata, partitions, tables


def path_of(message: tables.WireTablePath | metadata.PhysicalTablePath) -> TablePath:
    """A path from the wire; a lookup of one with invalid names finds nothing."""
    return TablePath(message.database_name, message.table_name)


def path_message(path: TablePath) -> tables.WireTablePath:
    """A path for the wire."""
    return tables.WireTablePath(database_name=path.database, table_name=path.table)


def described(table: TableEntry) -> bytes:
    """A table's JSON as clients see it, without the properties that would change their key encoding."""
    return _described(table.table_id, table.modified_ms, table.schema.schema_id, _ByIdentity(table))


class _ByIdentity:
    """Lets a cache keep a table without comparing all of it."""

    def __init__(self, table: TableEntry) -> None:
        self.table = table

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.table is self.table

    def __hash__(self) -> int:
        return id(self.table)


@lru_cache(maxsize=1024)
def _described(table_id: int, modified_ms: int, schema_id: int, table: _ByIdentity) -> bytes:
    description = table.table.description
    shown = replace(description, properties=properties.visible_to_peers(description.properties))
    return shown.to_json_bytes()


def values_of(spec: partitions.PartitionSpec) -> dict[str, str]:
    """A partition spec as a dictionary; a key given twice is refused."""
    pairs = [(one.key, one.value) for one in spec.partition_key_values]
    values = dict(pairs)
    if len(values) < len(pairs):
        raise InvalidPartition("a partition key is given twice", keys=[key for key, _ in pairs])
    return values


def spec_message(keys: Iterable[str], values: Iterable[str]) -> partitions.PartitionSpec:
    """A partition's keys and values for the wire."""
    return partitions.PartitionSpec(
        partition_key_values=[
            partitions.KeyValue(key=key, value=value) for key, value in zip(keys, values, strict=True)
        ]
    )
