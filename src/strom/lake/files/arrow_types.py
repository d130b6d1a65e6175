"""A table's columns as lake files store them, and the conversion both ways.

    TINYINT SMALLINT    int32                   converted back by the table's schema
    TIME(0-6)           time64[us]
    TIMESTAMP(0-6)      timestamp[us], with UTC for LTZ
    the rest            as in Strom

Every field carries its id (``field_ids.py``) where Parquet keeps it. Whole columns are cast, exactly both ways: a value
that does not fit is an error, never another value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from strom.errors import LakeCorrupt, LakeUnsupported
from strom.lake.files.field_ids import BUCKET_ID, OFFSET_ID, TIMESTAMP_ID, ElementIds, field_id
from strom.model import data_type as types
from strom.model.lake.lake_types import BUCKET, OFFSET, TIMESTAMP, check_schema
from strom.model.schema import Schema

PARQUET_FIELD_ID = b"PARQUET:field_id"

OWN_FIELDS = (
    pa.field(BUCKET, pa.int32(), nullable=False, metadata={PARQUET_FIELD_ID: str(BUCKET_ID).encode()}),
    pa.field(OFFSET, pa.int64(), nullable=False, metadata={PARQUET_FIELD_ID: str(OFFSET_ID).encode()}),
    pa.field(TIMESTAMP, pa.timestamp("us", "UTC"), metadata={PARQUET_FIELD_ID: str(TIMESTAMP_ID).encode()}),
)


@dataclass(frozen=True)
class ParquetLeaf:
    """One column of a Parquet file. ``repeated``: inside an array or a map, where minima mean nothing."""

    field_id: int
    type: pa.DataType
    repeated: bool


@lru_cache(maxsize=256)
def lake_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a data file: the table's columns, then ``__bucket``, ``__offset``, ``__timestamp``."""
    check_schema(schema)
    fields = [
        _field(column.name, column.type, field_id(column.id), ElementIds(column.id))
        for column in schema.columns
    ]
    return pa.schema([*fields, *OWN_FIELDS])


def leaves(schema: pa.Schema) -> list[ParquetLeaf]:
    """The Parquet columns of a lake schema, in the file's order."""
    found: list[ParquetLeaf] = []
    for item in schema:
        _collect(item, False, found)
    return found


def to_lake(array: pa.ChunkedArray | pa.Array, want: pa.Field) -> pa.ChunkedArray | pa.Array:
    """Convert a column of the table to the file's type."""
    if array.type.equals(want.type, check_metadata=False):
        return array
    try:
        return array.cast(want.type)
    except pa.ArrowInvalid as problem:
        raise LakeUnsupported(
            f"Column {want.name!r} has a value that the lake's {want.type} cannot hold: {problem}",
            column=want.name,
        ) from problem


def from_lake(array: pa.ChunkedArray | pa.Array, want: pa.Field) -> pa.ChunkedArray | pa.Array:
    """Convert a column of a file to the table's type."""
    if array.type.equals(want.type, check_metadata=False):
        return array
    try:
        return array.cast(want.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise LakeCorrupt(
            f"Column {want.name!r} of a lake file does not hold {want.type}: {problem}", column=want.name
        ) from problem


def id_of(item: pa.Field) -> int | None:
    """The field id that an Arrow field carries."""
    text = (item.metadata or {}).get(PARQUET_FIELD_ID)
    return int(text) if text is not None and text.isdigit() and len(text) <= 10 else None


def lake_type(data_type: types.DataType, elements: ElementIds) -> pa.DataType:
    """The file's type for a column's type."""
    match data_type:
        case types.TinyInt() | types.SmallInt():
            return pa.int32()
        case types.Time():
            return pa.time64("us")
        case types.Timestamp():
            return pa.timestamp("us")
        case types.TimestampLtz():
            return pa.timestamp("us", "UTC")
        case types.Array():
            return pa.list_(_field("element", data_type.element, elements.next(), elements))
        case types.Map():
            key = _field("key", data_type.key, elements.next(), elements)
            return pa.map_(key, _field("value", data_type.value, elements.next(), elements))
        case types.Row():
            return pa.struct(
                [
                    _field(item.name, item.type, field_id(item.id), ElementIds(item.id))
                    for item in data_type.fields
                ]
            )
        case _:
            return data_type.to_arrow()


def _field(name: str, data_type: types.DataType, number: int, elements: ElementIds) -> pa.Field:
    return pa.field(
        name,
        lake_type(data_type, elements),
        nullable=data_type.nullable,
        metadata={PARQUET_FIELD_ID: str(number).encode()},
    )


def _collect(item: pa.Field, repeated: bool, found: list[ParquetLeaf]) -> None:
    kind = item.type
    if pa.types.is_struct(kind):
        for position in range(kind.num_fields):
            _collect(kind.field(position), repeated, found)
    elif pa.types.is_map(kind):
        _collect(kind.key_field, True, found)
        _collect(kind.item_field, True, found)
    elif pa.types.is_list(kind):
        _collect(kind.value_field, True, found)
    else:
        number = id_of(item)
        assert number is not None
        found.append(ParquetLeaf(number, kind, repeated))
