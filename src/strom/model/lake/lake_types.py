"""Which tables the lake can hold. Checked before a table is tiered, so before any row is written.

Iceberg's times and timestamps have microseconds: more digits are refused, never silently truncated. Every other type
can be stored (docs/formats/lake.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from strom.errors import LakeUnsupported
from strom.model.data_type import DataType, Double, Float, Row, Time, Timestamp, TimestampLtz
from strom.model.schema import Schema

DIGITS_MAX = 6
PARTITION_TIME_DIGITS_MAX = 3
BUCKET = "__bucket"
OFFSET = "__offset"
TIMESTAMP = "__timestamp"
RESERVED = (BUCKET, OFFSET, TIMESTAMP)
"""Columns that every lake table has in addition to the table's own."""


def check_schema(schema: Schema) -> None:
    """Refuse a schema that the lake cannot hold; the error names the column and what to change."""
    for column in schema.columns:
        if column.name.lower() in RESERVED:
            raise LakeUnsupported(
                f"Column {column.name!r} cannot be in the lake: every lake table has its own column of that name; "
                "rename the column, or leave table.datalake.enabled false",
                column=column.name,
            )
        for path, data_type in _leaves(column.type, column.name):
            if isinstance(data_type, Time | Timestamp | TimestampLtz) and data_type.precision > DIGITS_MAX:
                raise LakeUnsupported(
                    f"{data_type.sql_name()} column {path!r} cannot be in the lake: Iceberg keeps microseconds; "
                    f"declare it {data_type.word}({DIGITS_MAX}), or leave table.datalake.enabled false",
                    column=path,
                    precision=data_type.precision,
                )


def check_table(schema: Schema, partition_keys: Sequence[str]) -> None:
    """Refuse a table that the lake cannot hold. Called before tiering, and before the lake table is created.

    A partition's name must determine the value of each key, because the lake is partitioned by values. Floating point
    numbers, and times of day beyond milliseconds, are not determined by it.
    """
    check_schema(schema)
    for name in partition_keys:
        data_type = schema.column(name).type
        fine = isinstance(data_type, Time) and data_type.precision > PARTITION_TIME_DIGITS_MAX
        if fine or isinstance(data_type, Float | Double):
            raise LakeUnsupported(
                f"A table that is partitioned by {data_type.sql_name()} column {name!r} cannot be in the lake: "
                "two values of it may share a partition's name; leave table.datalake.enabled false",
                column=name,
            )


def _leaves(data_type: DataType, path: str) -> Iterator[tuple[str, DataType]]:
    if isinstance(data_type, Row):
        for item in data_type.fields:
            yield from _leaves(item.type, f"{path}.{item.name}")
        return
    if not data_type.nested:
        yield path, data_type
    for child in data_type.children():
        yield from _leaves(child, path)
