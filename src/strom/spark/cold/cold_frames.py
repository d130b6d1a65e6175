"""Lake files as a DataFrame of Spark's own Parquet reader: columns by field, dead rows left out.

A column is found by its field id if the session reads by ids (``strom.spark.session`` sets it), else by its name, which
never changes. A column that is newer than a file is NULL.

Files without dead rows are read as they are. In other files, dead rows are known by offset (``dead_offsets.py``): a
test of one bit (``dead_bits.py``) or, in very large tables, a probe of a broadcast table filters them, both in compiled
code. Offsets belong to one partition, so files of different partitions that overlap are kept apart.

Filters on FLOAT and DOUBLE never go to the Parquet reader: it skips by statistics, in which files of other writers omit
NaN, and by dictionaries, in which -0.0 is not 0.0. So these columns are read through ``nanvl``, which changes nothing
and stops the pushdown of filters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StructField,
    StructType,
    TimestampType,
)

from strom.lake.files.field_ids import BUCKET_ID, OFFSET_ID, TIMESTAMP_ID, field_id
from strom.lake.files.storage import Storage
from strom.lake.read.union_plan import LakeLimits
from strom.model.lake.lake_types import BUCKET, OFFSET, TIMESTAMP
from strom.model.schema import Schema
from strom.spark.cold import dead_bits
from strom.spark.cold.dead_offsets import Longs
from strom.spark.cold.where_column import named, quoted
from strom.spark.connect.tasks import LakePart
from strom.spark.connect.types import spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FIELD_ID = "parquet.field.id"
READING = {
    "datetimeRebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "__globPaths__": "false",
    "recursiveFileLookup": "false",
    "mergeSchema": "false",
}
"""Overrides the session: dates as written, and a missing file is an error."""
LOCAL_ROWS = "spark.sql.execution.arrow.localRelationThreshold"
OFFSET_BITS = 48
"""Offsets are smaller (``time_travel.SNAPSHOT_IDS_FROM``)."""
BUCKETS_MAX = 1 << (63 - OFFSET_BITS)
_OWN = [
    StructField(BUCKET, IntegerType(), True, {FIELD_ID: BUCKET_ID}),
    StructField(OFFSET, LongType(), True, {FIELD_ID: OFFSET_ID}),
    StructField(TIMESTAMP, TimestampType(), True, {FIELD_ID: TIMESTAMP_ID}),
]
_PLACE = f"(shiftleft(CAST({BUCKET} AS BIGINT), {OFFSET_BITS}) | {OFFSET})"


class _Metadata(dict[str, str]):
    """Metadata of a column, truthy even if empty, so that field ids do not leak out."""

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True)
class ColdFrames:
    """Makes DataFrames of a table's files. ``where`` filters rows by the columns ``filtered``."""

    spark: SparkSession
    storage: Storage
    schema: Schema
    columns: Sequence[str]
    where: Column | None = None
    filtered: frozenset[str] = frozenset()

    def whole(self, parts: Sequence[LakePart]) -> DataFrame:
        """Files without dead rows."""
        return self._chosen(self._read(parts), parts)

    def without(self, parts: Sequence[LakePart], dead: Mapping[str, Longs]) -> Iterator[DataFrame]:
        """Files with dead rows."""
        for layer in layers(parts):
            read, alive = self._read(layer), dead_bits.alive(self.spark, layer, dead)
            rows = self._joined(read, layer, dead) if alive is None else read.where(alive)
            yield self._chosen(rows, layer)

    def _joined(self, read: DataFrame, parts: Sequence[LakePart], dead: Mapping[str, Longs]) -> DataFrame:
        """Rows that are not in a broadcast table of dead ones, keyed by bucket and offset in one integer."""
        places = [dead[part.file.path] | (part.file.bucket << OFFSET_BITS) for part in parts]
        key = _free_name("__place", self.schema.names)
        gone = self._shipped(pa.table({key: np.concatenate(places)}))
        rows = read.selectExpr(*(quoted(name) for name in read.columns), f"{_PLACE} AS {key}")
        return rows.join(F.broadcast(gone), on=key, how="left_anti")

    def _shipped(self, rows: pa.Table) -> DataFrame:
        """Rows for tasks to read. By default Spark would put so few into the plan and compare them in every rule."""
        before = self.spark.conf.get(LOCAL_ROWS, None)
        self.spark.conf.set(LOCAL_ROWS, "0")
        try:
            return self.spark.createDataFrame(rows)
        finally:
            if before is None:
                self.spark.conf.unset(LOCAL_ROWS)
            else:
                self.spark.conf.set(LOCAL_ROWS, before)

    def clean(self, frame: DataFrame) -> DataFrame:
        """The frame with its columns' comments and without field ids in their metadata."""
        found = []
        for name in self.columns:
            comment = self.schema.column(name).comment
            told = _Metadata({"comment": comment} if comment else {})
            found.append(named(name).alias(name, metadata=told))
        return frame.select(*found)

    def _read(self, parts: Sequence[LakePart]) -> DataFrame:
        uris = [uri_of(self.storage, part.file.path) for part in parts]
        fields = self._fields()
        frame = self.spark.read.options(**READING).schema(fields).parquet(*uris)
        if not any(_has_floats(one.dataType) for one in fields):
            return frame
        return frame.select(*(_unpushed(named(one.name), one.dataType).alias(one.name) for one in fields))

    def _fields(self) -> StructType:
        """The columns that are read, with bucket and offset of each row."""
        wanted = self.filtered | set(self.columns)
        fields = [
            StructField(one.name, spark_type(one.type), True, {FIELD_ID: field_id(one.id)})
            for one in self.schema.columns
            if one.name in wanted
        ]
        return StructType([*fields, *_OWN])

    def _chosen(self, frame: DataFrame, parts: Sequence[LakePart]) -> DataFrame:
        times = _times(parts[0].limits)
        for condition in (*times, *([] if self.where is None else [self.where])):
            frame = frame.where(condition)
        return frame.selectExpr(*(quoted(name) for name in self.columns))


def _has_floats(kind: DataType) -> bool:
    """Whether there is a float that a filter could be pushed to; not inside lists and maps."""
    if isinstance(kind, StructType):
        return any(_has_floats(one.dataType) for one in kind)
    return isinstance(kind, FloatType | DoubleType)


def _unpushed(column: Column, kind: DataType) -> Column:
    """The same values, out of reach of the reader's filters."""
    if not _has_floats(kind):
        return column
    if isinstance(kind, StructType):
        inside = [_unpushed(column.getField(one.name), one.dataType).alias(one.name) for one in kind]
        return F.when(column.isNotNull(), F.struct(*inside))
    return F.nanvl(column, F.lit("NaN").cast(kind))


def layers(parts: Sequence[LakePart]) -> list[list[LakePart]]:
    """The files in as few groups as possible, so that no two files of a bucket overlap in a group."""
    found: list[list[LakePart]] = []
    ends: list[dict[int, int]] = []
    for part in sorted(parts, key=lambda one: one.file.first_offset):
        bucket, first = part.file.bucket, part.file.first_offset
        number = next((at for at, end in enumerate(ends) if end.get(bucket, -1) < first), len(found))
        if number == len(found):
            found.append([])
            ends.append({})
        found[number].append(part)
        ends[number][bucket] = part.file.last_offset
    return found


def uri_of(storage: Storage, uri: str) -> str:
    """A file as a Hadoop path, which needs no escaping."""
    path = storage.path(uri)
    return f"file://{path}" if storage.config.local else f"s3a://{path}"


def _times(limits: LakeLimits | None) -> list[Column]:
    """Conditions on the commit time, if there are any; the same for all files."""
    if limits is None:
        return []
    found, column = [], named(TIMESTAMP)
    if limits.after_ms is not None:
        found.append(column >= F.timestamp_millis(F.lit(limits.after_ms)))
    if limits.before_ms is not None:
        found.append(column < F.timestamp_millis(F.lit(limits.before_ms)))
    return found


def _free_name(name: str, taken: Sequence[str]) -> str:
    known = {one.lower() for one in taken}
    while name in known:
        name += "_"
    return name
