"""Turns what a user says about a new table into the description that a server takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from strom.client.input.inferring import inferred
from strom.errors import InvalidTable
from strom.model import types
from strom.model.data_type import DataType
from strom.model.key_properties import INDEX_PREFIX
from strom.model.schema import Schema
from strom.model.table import TableDescription

TypeLike: TypeAlias = "DataType | pa.DataType | str"
SchemaLike: TypeAlias = "pa.Schema | Schema | Mapping[str, TypeLike] | Iterable[pa.Field] | Rows"
Rows: TypeAlias = Any
"""What ``append`` takes, or the path of a file: the table gets its columns."""

MergeEngine = Literal["first_row", "versioned", "aggregation"]

STATISTICS = "table.statistics.columns"


def describe(
    schema: SchemaLike,
    *,
    partition_by: str | Sequence[str] | None = None,
    buckets: int | None = None,
    bucket_key: str | Sequence[str] | None = None,
    primary_key: str | Sequence[str] | None = None,
    indexes: Mapping[str, str | Sequence[str]] | None = None,
    merge_engine: str | None = None,
    auto_increment: str | None = None,
    properties: Mapping[str, object] | None = None,
    comment: str | None = None,
) -> TableDescription:
    """The description of a table: with a primary key, or a log. By default statistics are kept for all columns
    of a log."""
    texts = {name: property_text(value) for name, value in (properties or {}).items()}
    if merge_engine is not None:
        texts["table.merge-engine"] = merge_engine
    for name, columns in (indexes or {}).items():
        texts[INDEX_PREFIX + name] = ",".join(_names(columns))
    keyed = bool(primary_key)
    own = {} if keyed else {STATISTICS: "*"}
    own |= {name: text for name, text in texts.items() if name.startswith("table.")}
    return TableDescription(
        schema=_with_key(schema_of(schema), _names(primary_key), auto_increment),
        partition_keys=_names(partition_by),
        bucket_key=_names(bucket_key),
        bucket_count=buckets,
        properties=own,
        custom_properties={name: text for name, text in texts.items() if not name.startswith("table.")},
        comment=comment,
    )


def _with_key(schema: Schema, key: tuple[str, ...], auto_increment: str | None) -> Schema:
    """The schema with a primary key, whose columns become NOT NULL."""
    generated = schema.auto_increment if auto_increment is None else (auto_increment,)
    key = key or schema.primary_key
    columns = tuple(
        replace(column, type=column.type.as_nullable(False)) if column.name in key else column
        for column in schema.columns
    )
    return replace(schema, columns=columns, primary_key=key, auto_increment=generated)


def schema_of(schema: SchemaLike) -> Schema:
    """A schema from Arrow's, from ``{"id": "BIGINT NOT NULL", "name": pa.string()}``, from fields, or from rows."""
    if isinstance(schema, Schema):
        return schema
    schema = inferred(schema) or schema
    if isinstance(schema, Mapping):
        fields = [_field(name, kind) for name, kind in schema.items()]
    elif isinstance(schema, Iterable) and not isinstance(schema, str):
        fields = list(schema)
    else:
        fields = [None]
    if not all(isinstance(field, pa.Field) for field in fields):
        raise InvalidTable(
            'a schema is a pyarrow Schema, a dict of names and types such as {"id": "BIGINT NOT NULL", "name": '
            f'"STRING"}}, a data frame, or the path of a file of rows, not {type(schema).__name__}'
        )
    return Schema.from_arrow(pa.schema(fields))


def type_of(kind: TypeLike, *, nullable: bool = True) -> DataType:
    """A type from its SQL name, from Arrow, or given as it is."""
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
