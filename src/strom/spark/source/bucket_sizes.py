"""Estimates of bytes per offset for each bucket, so that tasks come out about equal."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    AtomicType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    FloatType,
    IntegerType,
    ShortType,
    StringType,
    StructType,
)

from strom.api.table import Table
from strom.spark.connect.tasks import ROW_BYTES, TASK_BYTES_MIN, Part, Sizes, width
from strom.spark.connect.types import spark_schema

SMALL_ROWS = TASK_BYTES_MIN // ROW_BYTES // 16
"""At most this many rows are one task whatever their size, so the server is not asked."""
VARIABLE_BYTES = 20
"""An estimate for text, bytes, lists and maps."""
_WIDTHS: dict[type[DataType], int] = {
    BooleanType: 1,
    ByteType: 1,
    ShortType: 2,
    IntegerType: 4,
    FloatType: 4,
    DateType: 4,
    DecimalType: 16,
    StringType: VARIABLE_BYTES,
    BinaryType: VARIABLE_BYTES,
}


def sizes_of(table: Table, parts: Sequence[Part], columns: StructType | None = None) -> Sizes:
    """The sizes of the buckets, or of these columns; a fixed estimate if there are few rows."""
    if sum(width(part) for part in parts) <= SMALL_ROWS:
        return Sizes({})
    share = 1.0 if columns is None else _share(columns, spark_schema(table.info.schema, None))
    status = table.describe()
    by_name = {(one.partition, one.bucket): one for one in status.buckets}
    found = {}
    for part in parts:
        bucket = by_name.get((part.partition, part.bucket.bucket))
        if bucket is not None:
            offsets = max(bucket.end_offset - bucket.start_offset, 1)
            found[part.bucket] = bucket.size_bytes * share / offsets
    return Sizes(found, share)


def _share(columns: StructType, table: StructType) -> float:
    """Roughly which fraction of a row these columns take, by Spark's widths of their types."""
    widths = {field.name: _width(field.dataType) for field in table.fields}
    read = sum(widths.get(field.name, 0) for field in columns.fields)
    return min(1.0, max(read, 1) / max(sum(widths.values()), 1))


def _width(kind: DataType) -> int:
    if isinstance(kind, StructType):
        return sum(_width(field.dataType) for field in kind.fields)
    return _WIDTHS.get(type(kind), 8 if isinstance(kind, AtomicType) else VARIABLE_BYTES)
