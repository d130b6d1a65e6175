"""DataFrames in one line, for notebooks: ``format("strom")`` with options (``options.py``), except that Spark reads
lake files itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strom.client.plan.log_place import PlaceLike
from strom.errors import InvalidRequest
from strom.lake.files.file_reader import LakeFile
from strom.lake.read.union_plan import bucket_of
from strom.spark.connect import connections
from strom.spark.connect.options import CHANGELOG_SUFFIX, SourceOptions, place_text
from strom.spark.connect.tasks import LakePart
from strom.spark.engine.sessions import SERVERS
from strom.spark.union_frame import by_source, union_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def table(
    spark: SparkSession,
    name: str,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    at: PlaceLike = None,
    start: PlaceLike = None,
    end: PlaceLike = None,
    limit: int | None = None,
    servers: str | None = None,
    **options: object,
) -> DataFrame:
    """The rows of a table: now, or ``at`` an instant; of a log, between ``start`` and ``end``.

    Lake files are read by Spark's own Parquet reader if possible (``union_frame.py``).

    >>> strom.spark.table(spark, "shop.orders", columns=["id", "price"], where="price > 10")
    """
    places = {"at": at, "start": start, "end": end}
    said = _said(spark, name, columns, where, places, servers, {**options, "limit": limit})
    frame = union_frame(spark, said)
    return spark.read.format("strom").options(**said).load() if frame is None else frame


def files(
    spark: SparkSession,
    name: str,
    files: Sequence[LakeFile],
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    servers: str | None = None,
    **options: object,
) -> DataFrame:
    """The live rows of some files of a table's lake."""
    said = _said(spark, name, columns, where, {}, servers, options)
    table = connections.table(SourceOptions.of(said).server, name)
    parts = [LakePart(bucket_of(table.table_id, one), one.partition_name, one) for one in files]
    return by_source(spark, said, table, parts)


def changes(
    spark: SparkSession,
    name: str,
    *,
    start: PlaceLike = None,
    end: PlaceLike = None,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    stream: bool | None = None,
    servers: str | None = None,
    **options: object,
) -> DataFrame:
    """The changes of a table: a stream from ``start`` on (default ``"full"``: the whole table first).

    With ``end``, or ``stream=False``, a batch of the changes in between. The columns ``_change_type``, ``_log_offset``,
    ``_commit_timestamp`` and ``_bucket`` precede the table's.

    >>> strom.spark.changes(spark, "shop.users").writeStream.format("console").start()
    >>> strom.spark.changes(spark, "shop.users", start=yesterday, end=today).count()
    """
    streaming = end is None if stream is None else stream
    reader: Any = spark.readStream if streaming else spark.read
    full_name = name if name.endswith(CHANGELOG_SUFFIX) else name + CHANGELOG_SUFFIX
    places = {"start": start, "end": end}
    said = _said(spark, full_name, columns, where, places, servers, options)
    frame: DataFrame = reader.format("strom").options(**said).load()
    return frame


def merge(
    frame: DataFrame,
    name: str,
    *,
    servers: str | None = None,
    checkpoint: str | None = None,
    **options: object,
) -> StreamingQuery | None:
    """Write rows into a table by key: insert new ones, update known ones, delete those with ``_change_type = '-D'``.

    A stream needs a ``checkpoint`` and returns its query. Rows are written exactly once either way.

    >>> strom.spark.merge(frame, "shop.users")
    >>> query = strom.spark.merge(strom.spark.changes(spark, "shop.users"), "shop.copy", checkpoint="/tmp/copy")
    """
    said = {"table": name, **servers_of(frame.sparkSession, servers), **_texts(options)}
    if not frame.isStreaming:
        frame.write.format("strom").mode("append").options(**said).save()
        return None
    if checkpoint is None:
        raise InvalidRequest("a stream remembers how far it came: say checkpoint=, a folder of its own")
    return frame.writeStream.format("strom").options(**said, checkpointLocation=checkpoint).start()


def _said(
    spark: SparkSession,
    name: str,
    columns: Sequence[str] | None,
    where: str | None,
    places: Mapping[str, PlaceLike],
    servers: str | None,
    options: Mapping[str, object],
) -> dict[str, str]:
    said = {"table": name, **servers_of(spark, servers)}
    if columns is not None:
        said["columns"] = json.dumps(list(columns))
    if where is not None:
        said["where"] = where
    said |= {key: place_text(place) for key, place in places.items() if place is not None}
    return said | _texts(options)


def _texts(options: Mapping[str, object]) -> dict[str, str]:
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in options.items()
        if value is not None
    }


def servers_of(spark: SparkSession, servers: str | None) -> dict[str, str]:
    found = {"bootstrap.servers": servers} if servers else {}
    for name in ("bootstrap.servers", "user", "password", "retry.seconds"):
        said = spark.conf.get(SERVERS.replace("bootstrap.servers", name), None)
        if said:
            found.setdefault(name, said)
    if "bootstrap.servers" not in found:
        raise InvalidRequest('say where the server is: servers="host:9123", here or for strom.spark.session')
    return found
