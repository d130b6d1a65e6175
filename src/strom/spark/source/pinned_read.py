"""What a DataFrame reads, decided once: the table, its columns, and the offset of every bucket.

Spark plans again for every action and every failed task. The offsets are decided when the DataFrame is made, so all of
them read the same rows; if these have expired, an error says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import types as spark

from strom.api.table import Table
from strom.client.cluster.metadata import PartitionInfo, TableInfo
from strom.client.plan.filters import prune
from strom.client.plan.log_place import PlaceLike
from strom.client.read.beginning import Missing
from strom.client.read.changelog import BUCKET, CHANGE_TYPE, COMMIT_TIMESTAMP, LOG_OFFSET
from strom.errors import InvalidProjection, InvalidRequest, SchemaMismatch
from strom.model.filters.predicate import Predicate
from strom.model.names import nearest
from strom.model.schema import Schema
from strom.spark.connect.options import SourceOptions
from strom.spark.connect.tasks import Part, parts_of
from strom.spark.connect.types import spark_schema, spark_type

FACTS = spark.StructType(
    [
        spark.StructField(CHANGE_TYPE, spark.StringType(), False),
        spark.StructField(LOG_OFFSET, spark.LongType(), False),
        spark.StructField(COMMIT_TIMESTAMP, spark.TimestampType(), True),
        spark.StructField(BUCKET, spark.IntegerType(), False),
    ]
)
"""They precede the columns of a changelog. The commit time of a row of an instant is unknown: NULL."""


@dataclass(frozen=True)
class Pinned:
    """A table as planning saw it, and the parts to read."""

    info: TableInfo
    parts: tuple[Part, ...]

    def within(self, where: Predicate | None) -> list[Part]:
        """The parts that may hold rows that pass; other partitions are pruned."""
        if where is None or not self.info.partitioned:
            return list(self.parts)
        known = {part.bucket.partition_id: part.partition for part in self.parts}
        partitions = [
            PartitionInfo(number, name, tuple(name.split("$")))
            for number, name in known.items()
            if number is not None and name is not None
        ]
        kept = {one.partition_id for one in prune(partitions, self.info.description, where)}
        return [part for part in self.parts if part.bucket.partition_id in kept]


def pin(options: SourceOptions, table: Table, where: Predicate | None = None) -> Pinned:
    """Decide what is read. ``where`` may rule out a whole tier, but does not filter rows yet."""
    info = table.info
    start = _log_place(options.start)
    if options.changelog:
        if options.at is not None:
            raise InvalidRequest("a changelog is read between start= and end=; at= is for the table itself")
        missing: Missing = "error" if options.fail_on_data_loss else "skip"
        return Pinned(info, parts_of(table.changelog(start, options.end, missing=missing).plan()))
    if info.description.has_primary_key:
        if options.start is not None or options.end is not None:
            raise InvalidRequest(
                "start= and end= bound the changelog of a primary-key table: add .option('changelog', 'true'), "
                "or say at= for the table as it was"
            )
        return Pinned(info, parts_of(table.scan(at=options.at, where=where).plan()))
    return Pinned(info, parts_of(table.scan(where=where, start=start, end=options.end, at=options.at).plan()))


def _log_place(place: PlaceLike) -> PlaceLike:
    """For a log, "full" is all that is kept."""
    return "earliest" if place == "full" else place


# --- columns -------------------------------------------------------------------------------------------------------


def schema_of(options: SourceOptions, schema: Schema) -> spark.StructType:
    """The columns of the DataFrame."""
    wanted = options.columns
    if not options.changelog:
        return spark_schema(schema, wanted)
    facts = {field.name: field for field in FACTS.fields}
    own = None if wanted is None else tuple(name for name in wanted if name not in facts)
    if wanted is not None and len(own or ()) < len(wanted):
        columns = {field.name: field for field in (spark_schema(schema, own).fields if own else [])} | facts
        return spark.StructType([columns[name] for name in wanted])
    return spark.StructType([*FACTS.fields, *spark_schema(schema, own).fields])


def check_schema(options: SourceOptions, schema: Schema, asked: spark.StructType) -> None:
    """Refuse a schema that was given to Spark and does not fit the table's."""
    facts = {field.name: field.dataType for field in FACTS.fields} if options.changelog else {}
    for field in asked.fields:
        column = schema.find(field.name)
        if column is None and field.name not in facts:
            raise InvalidProjection(
                f"table {options.table} has no column {field.name!r}{nearest(field.name, [*schema.names, *facts])}",
                column=field.name,
            )
        have = facts[field.name] if column is None else spark_type(column.type)
        if have.simpleString() != field.dataType.simpleString():
            raise SchemaMismatch(
                f"column {field.name!r} of {options.table} is {have.simpleString()} in Spark, and the schema that "
                f"was given says {field.dataType.simpleString()}: leave .schema(…) out, or cast the column",
                column=field.name,
            )
