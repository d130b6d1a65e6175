"""Lake files as a DataFrame of Spark's own Parquet reader: columns by field id, rows that do not count left out.

Files of which every row counts are read as they are. Of the others the rows that do not count are known by their places
(``dead_rows.py``); a place is one number, made of the file's size and the row, so that leaving them out is a probe of a
small table by a whole number, in compiled code, and no column is read for it. Files of the same size are kept apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType, TimestampType

from strom.lake.field_ids import TIMESTAMP_ID, field_id
from strom.lake.planned import LakeLimits
from strom.lake.storage import Storage
from strom.model.lake_types import TIMESTAMP
from strom.model.schema import Column as StromColumn
from strom.model.schema import Schema
from strom.spark.dead_rows import Rows
from strom.spark.tasks import LakePart
from strom.spark.types import spark_type
from strom.spark.where_column import named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FIELD_ID = "parquet.field.id"
READING = {
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "datetimeRebaseMode": "CORRECTED",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "__globPaths__": "false",
    "recursiveFileLookup": "false",
    "mergeSchema": "false",
}
"""Whatever the session says: fields by id, days as they are written, a file that is missing is an error."""
PLACE_BITS = 31
"""Of a file's size, and of the number of a row: together they are one number."""


class _Metadata(dict[str, str]):
    """Of a column; said even when it is empty, so that field ids stay in here."""

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True)
class ColdFrames:
    """Makes DataFrames of a table's files. ``where``: what rows must pass; it looks at ``filtered``."""

    spark: SparkSession
    storage: Storage
    schema: Schema
    columns: Sequence[str]
    where: Column | None = None
    filtered: frozenset[str] = frozenset()

    def whole(self, parts: Sequence[LakePart]) -> DataFrame:
        """Files of which every row counts."""
        return self._chosen(self._read(parts), parts)

    def without(self, parts: Sequence[LakePart], dead: Mapping[str, Rows]) -> Iterator[DataFrame]:
        """Files of which some rows do not."""
        for layer in layers(parts):
            places = np.concatenate([(part.file.size << PLACE_BITS) | dead[part.file.path] for part in layer])
            key = _free_name("__place", self.schema.names)
            place = F.shiftleft(F.col("_metadata.file_size"), PLACE_BITS).bitwiseOR(
                F.col("_metadata.row_index")
            )
            read = self._read(layer)
            rows = read.select(*(named(name) for name in read.columns), place.alias(key))
            gone = self.spark.createDataFrame(pa.table({key: places}))
            yield self._chosen(rows.join(F.broadcast(gone), on=key, how="left_anti"), layer)

    def _read(self, parts: Sequence[LakePart]) -> DataFrame:
        uris = [uri_of(self.storage, part.file.path) for part in parts]
        return self.spark.read.options(**READING).schema(self._fields()).parquet(*uris)

    def _fields(self) -> StructType:
        """The columns that are looked at, and when a row was written."""
        wanted = self.filtered | set(self.columns)
        fields = [
            StructField(one.name, spark_type(one.type), True, {FIELD_ID: field_id(one.id)})
            for one in self.schema.columns
            if one.name in wanted
        ]
        return StructType([*fields, StructField(TIMESTAMP, TimestampType(), True, {FIELD_ID: TIMESTAMP_ID})])

    def _chosen(self, frame: DataFrame, parts: Sequence[LakePart]) -> DataFrame:
        times = _times(parts[0].limits)
        for condition in (*times, *([] if self.where is None else [self.where])):
            frame = frame.where(condition)
        return frame.select(*(_clean(self.schema.column(name)) for name in self.columns))


def layers(parts: Sequence[LakePart]) -> list[list[LakePart]]:
    """The files in as few groups as make their sizes differ within each."""
    found: list[list[LakePart]] = []
    seen: dict[int, int] = {}
    for part in parts:
        number = seen[part.file.size] = seen.get(part.file.size, -1) + 1
        if number == len(found):
            found.append([])
        found[number].append(part)
    return found


def uri_of(storage: Storage, uri: str) -> str:
    """A file as Hadoop calls it, which takes every character as it is."""
    path = storage.path(uri)
    return f"file://{path}" if storage.config.local else f"s3a://{path}"


def _times(limits: LakeLimits | None) -> list[Column]:
    """When rows were written, where that counts: of all files alike."""
    if limits is None:
        return []
    found, column = [], named(TIMESTAMP)
    if limits.after_ms is not None:
        found.append(column >= F.timestamp_millis(F.lit(limits.after_ms)))
    if limits.before_ms is not None:
        found.append(column < F.timestamp_millis(F.lit(limits.before_ms)))
    return found


def _clean(column: StromColumn) -> Column:
    told = _Metadata({"comment": column.comment} if column.comment else {})
    return named(column.name).alias(column.name, metadata=told)


def _free_name(name: str, taken: Sequence[str]) -> str:
    known = {one.lower() for one in taken}
    while name in known:
        name += "_"
    return name
