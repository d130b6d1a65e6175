"""A new table as people describe it, as the description a server takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from strom.errors import InvalidTable
from strom.model import types
from strom.model.data_type import DataType
from strom.model.schema import Schema
from strom.model.table import TableDescription

TypeLike: TypeAlias = "DataType | pa.DataType | str"
SchemaLike: TypeAlias = "pa.Schema | Schema | Mapping[str, TypeLike] | Iterable[pa.Field]"

STATISTICS = "table.statistics.columns"


def describe(
    schema: SchemaLike,
    *,
    partition_by: str | Sequence[str] | None = None,
    buckets: int | None = None,
    bucket_key: str | Sequence[str] | None = None,
    properties: Mapping[str, object] | None = None,
    comment: str | None = None,
) -> TableDescription:
    """The description of a log table. Statistics are kept for all columns unless something else is said."""
    texts = {name: property_text(value) for name, value in (properties or {}).items()}
    own = {STATISTICS: "*"} | {name: text for name, text in texts.items() if name.startswith("table.")}
    return TableDescription(
        schema=schema_of(schema),
        partition_keys=_names(partition_by),
        bucket_key=_names(bucket_key),
        bucket_count=buckets,
        properties=own,
        custom_properties={name: text for name, text in texts.items() if not name.startswith("table.")},
        comment=comment,
    )


def schema_of(schema: SchemaLike) -> Schema:
    """A schema from Arrow's, from ``{"id": "BIGINT NOT NULL", "name": pa.string()}``, or from fields."""
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, Mapping):
        fields = [_field(name, kind) for name, kind in schema.items()]
    elif isinstance(schema, Iterable) and not isinstance(schema, str):
        fields = list(schema)
    else:
        fields = [None]
    if not all(isinstance(field, pa.Field) for field in fields):
        raise InvalidTable(
            "a schema is a pyarrow Schema, or a dict of names and types such as "
            f'{{"id": "BIGINT NOT NULL", "name": "STRING"}}, not {type(schema).__name__}'
        )
    return Schema.from_arrow(pa.schema(fields))


def type_of(kind: TypeLike, *, nullable: bool = True) -> DataType:
    """A type from its SQL name, from Arrow, or as it is."""
    if isinstance(kind, DataType):
        return kind
    if isinstance(kind, str):
        return types.parse(kind)
    if isinstance(kind, pa.DataType):
        return types.from_arrow(kind, nullable)
    raise InvalidTable(f"a type is text such as 'BIGINT', or a pyarrow type, not {kind!r:.60}")


def property_text(value: object) -> str:
    """A property's value as text: True is ``true``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _field(name: str, kind: TypeLike) -> pa.Field:
    found = type_of(kind)
    return pa.field(name, found.to_arrow(), nullable=found.nullable)


def _names(value: str | Sequence[str] | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)
