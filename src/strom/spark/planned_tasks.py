"""The tasks of a query of the SQL catalog, and how a worker reads one: all that Spark needs, by one question.

Spark asks a source of its own kind twice, and each question starts something in another process: to make the source,
then to plan. The catalog knows columns, filters and limit by then, so that one question is enough.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from strom.aio.table import tiered
from strom.lake.storage import Storage
from strom.spark import connections
from strom.spark.batch_reader import BatchReader
from strom.spark.beside import BesideReader, look
from strom.spark.lake_share import LakeShare
from strom.spark.options import ReadOptions
from strom.spark.part_text import parts_of_text
from strom.spark.pinned import Pinned

_CODEC = "zstd"
"""Tasks may name many offsets that died."""


class Reading:
    """What a worker calls: Spark sends it one task, it gives the rows. Pickled: plain data only."""

    def __init__(self, reader: DataSourceReader) -> None:
        self._reader = reader

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the one task that comes."""
        (packed,) = (value for batch in batches for value in batch.column(0).to_pylist())
        size = int.from_bytes(packed[:8], "little")
        task = pickle.loads(pa.decompress(packed[8:], decompressed_size=size, codec=_CODEC, asbytes=True))
        rows: Iterator[Any] = self._reader.read(task)
        return rows


def plan(said: Mapping[str, str], columns: StructType, *, files: bool) -> dict[str, Any]:
    """How these columns are read, then the tasks that do: pickled, in base64. With ``files`` those that Spark's own
    reader takes are told apart, by task, with the columns to be read of them."""
    options = ReadOptions.of(said)
    if options.beside:
        beside = BesideReader(options, columns, look(options))
        return {"tasks": _told(beside, beside.partitions(), columns), "files": [], "schema": ""}
    reader = BatchReader(options, columns, _pinned(options))
    share = _share(options, columns) if files else None
    tasks = reader.tasks(share)
    if share is None or not share.groups:
        return {"tasks": _told(reader, tasks or [InputPartition(None)], columns), "files": [], "schema": ""}
    return {"tasks": _told(reader, tasks, columns), "files": share.groups, "schema": share.schema.json()}


def _share(options: ReadOptions, columns: StructType) -> LakeShare | None:
    """What takes files, where the rows of a table are read as they are, and none of them is enough."""
    limited = options.limit is not None or options.query_limit is not None
    if limited or options.changelog or options.lake_reader != "spark":
        return None
    table = connections.table(options.server, options.table)
    if not tiered(table.info):
        return None
    config = connections.database(options.server).lake(options.table).config
    return LakeShare(Storage(config), table.info.schema, columns, options.parallelism)


def _pinned(options: ReadOptions) -> Pinned | None:
    if options.planned is None:
        return None
    table = connections.table(options.server, options.table)
    return Pinned(table.info, parts_of_text(options.planned, table.table_id))


def _told(reader: DataSourceReader, tasks: Iterable[InputPartition], columns: StructType) -> list[str]:
    return [_text(pickle.dumps((Reading(reader), columns))), *(_text(_packed(one)) for one in tasks)]


def _packed(task: InputPartition) -> bytes:
    plain = pickle.dumps(task)
    return len(plain).to_bytes(8, "little") + bytes(pa.compress(plain, codec=_CODEC, asbytes=True))


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
