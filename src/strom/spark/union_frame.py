"""One DataFrame over both tiers, planned once: lake files by Spark's own reader, the rest by the Python source.

The plan is made here, on the driver: files of one snapshot, offsets of the log, and what died in between. It travels
with the DataFrame, so every action and every retried task reads the rows of that one instant. The Python source reads
the log, files that are only partly needed, and files of other engines with dead rows.

If the session has the SQL catalog, its scan reads both tiers (``parquet_files.py``): one scan is planned faster than
several, and a sum over it builds no rows. This is planned here too, for all columns, so no action calls Python again.
With a filter (``where=``), which Spark has to apply to rows of files, or without the catalog, the result is a union of
DataFrames.

None means that the Python source reads everything: a table without a lake, Spark Connect (its driver is elsewhere),
files that Spark cannot reach (S3 without hadoop-aws), a filter that Spark cannot express, a TIME column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from strom.aio.log import tiered
from strom.api.table import Table
from strom.client.plan.filters import filter_of
from strom.errors import StromError
from strom.lake.files.file_description import is_own
from strom.lake.files.storage import Storage
from strom.spark.catalog import catalog_tables, planned_tasks
from strom.spark.cold.cold_frames import BUCKETS_MAX, ColdFrames, layers, uri_of
from strom.spark.cold.dead_offsets import dead_offsets
from strom.spark.cold.parquet_files import has_doubles, has_time
from strom.spark.cold.where_column import quoted, where_column
from strom.spark.connect import connections
from strom.spark.connect.filters import combined
from strom.spark.connect.options import SourceOptions
from strom.spark.connect.tasks import LakePart, Part
from strom.spark.engine import jar
from strom.spark.engine.sessions import CATALOG
from strom.spark.source.part_json import text_of_parts
from strom.spark.source.pinned_read import Pinned, pin, schema_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEAD_MAX = 4_000_000
"""Dead rows that are sent to every executor; if there are more, the Python source filters them."""


LAYERS_MAX = 4
"""Scans of files with dead rows, one per overlapping partition. The Python source reads the rest."""
SCANS_FILES = "4.3."
"""The version of Spark whose Parquet reader the catalog's scan knows."""
FEW = 4
"""Files are few if they have fewer than one row for this many others."""


def union_frame(spark: SparkSession, said: Mapping[str, str]) -> DataFrame | None:
    """The rows that these options ask for; None when the Python source reads them all."""
    if not _on_this_driver(spark):
        return None
    try:
        options = SourceOptions.of(said)
        plain = options.limit is None and options.pin == "load" and not options.changelog
        if not plain or options.system_table or options.lake_reader != "spark":
            return None
        table = connections.table(options.server, options.table)
        if not tiered(table.info) or has_doubles(table.info.schema):
            return None
        return _framed(spark, said, options, table)
    except StromError:
        return None  # the source raises the same error, as Spark reports it


def _framed(
    spark: SparkSession, said: Mapping[str, str], options: SourceOptions, table: Table
) -> DataFrame | None:
    info = table.info
    predicate = combined(options.where, ())
    found = filter_of(predicate, info.schema)
    where = None if found is None else where_column(found.predicate)
    if found is not None and where is None:
        return None
    columns = schema_of(options, info.schema).names
    filtered = frozenset() if found is None else found.predicate.columns()
    if any(has_time(info.schema.column(name).type) for name in {*columns, *filtered}):
        return None
    parts = pin(options, table, predicate).parts
    files = [part for part in parts if isinstance(part, LakePart)]
    if not files or (predicate is None and _in_one_scan(spark, said)):
        return by_source(spark, said, table, parts)
    config = connections.database(options.server).lake(options.table).config
    storage = Storage(config)
    if not _reachable(spark, uri_of(storage, files[0].file.path)):
        return by_source(spark, said, table, parts)
    shares = _shared(files)
    left: list[Part] = [*shares.left, *(part for part in parts if not isinstance(part, LakePart))]
    cold = ColdFrames(spark, storage, info.schema, columns, where, filtered)
    frames = [cold.whole(shares.whole)] if shares.whole else []
    dead = dead_offsets(storage, shares.dying)
    if sum(map(len, dead.values())) <= DEAD_MAX:
        frames += cold.without(shares.dying, dead)
    else:
        left += shares.dying
    if left or not frames:  # first: a union takes names and metadata from its first part
        frames.insert(0, by_source(spark, said, table, left))
    whole = frames[0] if left else cold.clean(frames[0])
    for frame in frames[1:]:
        whole = whole.union(frame)
    return whole


def by_source(spark: SparkSession, said: Mapping[str, str], table: Table, parts: Sequence[Part]) -> DataFrame:
    """What the Python source reads; through the SQL catalog if the session has it, which prunes columns and keeps them
    columnar."""
    told = {**said, "_planned": text_of_parts(table.table_id, parts)}
    if not _in_catalog(spark, said):
        parallelism = {"_parallelism": str(spark.sparkContext.defaultParallelism)}
        return spark.read.format("strom").options(**told, **parallelism).load()
    every = list(table.info.schema.names)
    columns = schema_of(SourceOptions.of(said), table.info.schema).names
    frame = _by_catalog(spark, told, table, parts)
    return frame if columns == every else frame.selectExpr(*map(quoted, columns))


def _by_catalog(
    spark: SparkSession, told: Mapping[str, str], table: Table, parts: Sequence[Part]
) -> DataFrame:
    """Directly, if the session's classes allow it: the catalog would first ask for the table and then for the plan."""
    from pyspark.sql.classic.dataframe import DataFrame

    options = {**told, "table": table.name, "pin": "query"}
    described = catalog_tables.described(table) | {"plan": _plan(spark, options, table, parts)}
    try:
        known: Any = spark._jvm.strom.spark.StromCatalog  # type: ignore[union-attr]
        return DataFrame(known.planned(spark._jsparkSession, options, json.dumps(described)), spark)
    except (Py4JError, TypeError):  # another Spark, or a class that only the catalog's loader knows
        options = {name: text for name, text in told.items() if name != "table"}
        path = ".".join(map(quoted, table.name.split(".", 1)))
        return spark.read.options(**options).table(f"{CATALOG}.{path}")


def _plan(
    spark: SparkSession, said: Mapping[str, str], table: Table, parts: Sequence[Part]
) -> dict[str, Any]:
    """What a query without its own filter and limit reads, for any columns."""
    options = replace(SourceOptions.of(said), parallelism=spark.sparkContext.defaultParallelism)
    pinned = Pinned(table.info, tuple(parts))
    columns = schema_of(options, table.info.schema)
    files = options.where is None and spark.version.startswith(SCANS_FILES)
    return planned_tasks.planned(options, table, columns, pinned, files=files)


def _in_one_scan(spark: SparkSession, said: Mapping[str, str]) -> bool:
    """Whether the catalog's scan can use Spark's own reader for files (``LakeFiles.java``)."""
    return _in_catalog(spark, said) and spark.version.startswith(SCANS_FILES)


def _in_catalog(spark: SparkSession, said: Mapping[str, str]) -> bool:
    """Whether the session's catalog uses the same servers and user."""
    place = f"spark.sql.catalog.{CATALOG}"
    same = all(
        spark.conf.get(f"{place}.{name}", None) == said.get(name)
        for name in ("bootstrap.servers", "user", "password")
    )
    return same and spark.conf.get(place, None) == jar.CATALOG


class _Shares(NamedTuple):
    """Which reader takes which file."""

    whole: list[LakePart]
    dying: list[LakePart]
    left: list[LakePart]
    """By the Python source."""


def _shared(files: Sequence[LakePart]) -> _Shares:
    shares = _Shares([], [], [])
    for part in files:
        if _outside(part):
            continue
        if _cut(part):
            shares.left.append(part)
        elif not part.file.deletes and not part.dead:
            shares.whole.append(part)
        elif is_own(part.file.path) and part.file.bucket < BUCKETS_MAX:
            shares.dying.append(part)
        else:
            shares.left.append(part)
    several = layers(shares.dying)
    dying = [part for layer in several[:LAYERS_MAX] for part in layer]
    left = [*shares.left, *(part for layer in several[LAYERS_MAX:] for part in layer)]
    return _with_few(_Shares(shares.whole, dying, left))


def _with_few(shares: _Shares) -> _Shares:
    """Read clean files with few rows together with those that have dead rows: another scan would cost more."""
    together = [*shares.dying, *shares.whole]
    few = sum(part.file.rows for part in shares.whole) * FEW < sum(part.file.rows for part in shares.dying)
    if few and len(layers(together)) == len(layers(shares.dying)):
        return _Shares([], together, shares.left)
    return shares


def _bounds(part: LakePart) -> tuple[int, int]:
    limits = part.limits
    low = 0 if limits is None else limits.low.get(part.bucket, 0)
    end = part.file.last_offset + 1
    return low, end if limits is None else limits.high.get(part.bucket, end)


def _outside(part: LakePart) -> bool:
    """Whether the file has no row in the requested range of the log."""
    low, high = _bounds(part)
    return low > part.file.last_offset or high <= part.file.first_offset


def _cut(part: LakePart) -> bool:
    """Whether only some of its offsets are in it."""
    low, high = _bounds(part)
    return low > part.file.first_offset or high <= part.file.last_offset


def _on_this_driver(spark: SparkSession) -> bool:
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def _reachable(spark: SparkSession, uri: str) -> bool:
    """Whether Spark can open files there."""
    try:
        path = spark._jvm.org.apache.hadoop.fs.Path(uri)  # type: ignore[union-attr]
        settings = spark._jsparkSession.sessionState().newHadoopConf()
        return bool(path.getFileSystem(settings).exists(path))
    except Py4JError:
        return False
