"""Changing a table that exists: columns at the end, properties that may change.

However many columns one alteration adds, the table gets one new schema; the one it replaces is kept for the
batches that were written under it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from strom.coordinator import keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.entries import encode_schema, encode_table
from strom.coordinator.plan import UpdatePlan
from strom.errors import InvalidAlter
from strom.metadata.changes import Put, Update
from strom.model import properties, types
from strom.model.document import Document
from strom.model.key_properties import INDEX_PREFIX
from strom.model.schema import SCHEMA_ID_MAX, Schema
from strom.model.table import TableDescription, TableEntry, TablePath


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A column to add at the end. It must be nullable: existing rows have no value for it."""

    name: str
    type: types.DataType
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class Alteration:
    """Everything one call changes, all of it or nothing."""

    add_columns: tuple[NewColumn, ...] = ()
    set: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, json: bytes | memoryview | str) -> Alteration:
        """From the body of the AlterTable call (docs/formats/protocol.md)."""
        doc = Document.parse(json, "alteration", InvalidAlter)
        unknown = sorted(doc.value.keys() - {"add_columns", "set", "unset"})
        if unknown:
            doc.refuse(unknown[0], "is nothing that can be altered")
        columns = [
            NewColumn(
                name=column.text("name"),
                type=types.from_json(column.raw("data_type"), f"{column.path}.data_type"),
                comment=column.text_or_none("comment"),
            )
            for column in doc.documents("add_columns")
        ]
        return cls(tuple(columns), doc.mapping("set"), doc.texts("unset"))


def alter_table(
    catalog: Catalog, path: TablePath, alteration: Alteration, *, now_ms: int
) -> UpdatePlan[TableEntry]:
    """Add columns, set and unset properties."""
    table = catalog.table(path)
    schema = _with_columns(table.schema, alteration)
    description = _with_properties(replace(table.description, schema=schema), alteration)
    if catalog.limits.replicated and _durability(description) != _durability(table.description):
        raise InvalidAlter(
            "table.durability cannot be changed in a cluster: it decides which copies count as in sync",
            property="table.durability",
        )
    if description == table.description:
        return UpdatePlan(table)
    properties.validate_table(description)
    altered = replace(
        table,
        description=description,
        schemas=table.schemas if schema is table.schema else (*table.schemas, schema),
        # A clock that was set back must not make a change look older than the table.
        modified_ms=max(now_ms, table.modified_ms),
    )
    epoch = catalog.leaders_epoch(table.table_id, None)
    key = keys.table(table.table_id)
    updates: list[Update] = [Put(key, encode_table(altered, epoch))]
    if schema is not table.schema:
        replaced = keys.schema(table.table_id, table.schema.schema_id)
        updates.append(Put(replaced, encode_schema(table.schema)))
    return UpdatePlan(altered, [catalog.unchanged(key)], updates)


def _durability(description: TableDescription) -> str | None:
    return properties.durability(description.properties)


def _with_columns(schema: Schema, alteration: Alteration) -> Schema:
    if not alteration.add_columns:
        return schema
    if schema.schema_id >= SCHEMA_ID_MAX:
        raise InvalidAlter(f"A table has at most {SCHEMA_ID_MAX} schemas", schema_id=schema.schema_id)
    longer = schema
    for column in alteration.add_columns:
        longer = replace(
            longer.add_column(column.name, column.type, column.comment), schema_id=schema.schema_id
        )
    return replace(longer, schema_id=schema.schema_id + 1)


def _with_properties(description: TableDescription, alteration: Alteration) -> TableDescription:
    both = sorted(alteration.set.keys() & set(alteration.unset))
    if both:
        raise InvalidAlter(f"{both[0]} is set and unset at once", property=both[0])
    properties.validate(alteration.set, altering=True)
    properties.check_alterable(alteration.unset)
    own = dict(description.properties)
    custom = dict(description.custom_properties)
    for name in alteration.unset:
        own.pop(name, None)
        custom.pop(name, None)
    for name, value in alteration.set.items():
        if name.startswith(INDEX_PREFIX) and own.get(name, value) != value:
            raise InvalidAlter(
                f"{name} is {own[name]!r}: drop the index before you recreate it on other columns",
                property=name,
            )
        target = own if name.startswith(properties.PREFIX) or name in own else custom
        target[name] = value
    return replace(description, properties=own, custom_properties=custom)
