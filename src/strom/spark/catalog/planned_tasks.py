"""The tasks of a query of the SQL catalog and how a worker reads one, in a single call.

For a Python source Spark makes two calls, each in another process: to create the source, then to plan. The catalog
already knows columns, filters and limit, so one call is enough. No call is needed if the DataFrame was planned when it
was made (``union_frame.py``): a plan is the same for all columns, so the reader is pickled without the columns, and the
catalog's shim inserts their text.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from strom.aio.log import tiered
from strom.api.table import Table
from strom.lake.files.storage import Storage
from strom.spark.cold.parquet_files import ParquetFiles
from strom.spark.connect import connections
from strom.spark.connect.options import SourceOptions
from strom.spark.source.batch_reader import BatchReader
from strom.spark.source.part_json import parts_of_text
from strom.spark.source.pinned_read import Pinned
from strom.spark.source.system_tables import SystemTableRead, SystemTableReader, plan_read

_CODEC = "zstd"
"""Tasks may list many dead offsets."""
_COLUMNS = "columns to be named"
"""A placeholder in the pickled reader."""
_PROTOCOL = 3
"""Of pickle: the last protocol that writes every text as four bytes of length and the text."""


class Reading:
    """Called in a worker: takes one task, returns its rows. Pickled: plain data only."""

    def __init__(self, reader: DataSourceReader) -> None:
        self._reader = reader

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of the task."""
        (packed,) = (value for batch in batches for value in batch.column(0).to_pylist())
        size = int.from_bytes(packed[:8], "little")
        task = pickle.loads(pa.decompress(packed[8:], decompressed_size=size, codec=_CODEC, asbytes=True))
        rows: Iterator[Any] = self._reader.read(task)
        return rows


class _Command:
    """What Spark sends to a worker with each task, except the columns."""

    def __init__(self, reader: Callable[..., DataSourceReader], options: SourceOptions, more: object) -> None:
        self._made_of = reader, options, more

    def __reduce__(self) -> tuple[Any, ...]:
        return _command, (*self._made_of, _COLUMNS)

    def parts(self) -> tuple[bytes, bytes]:
        """The bytes before and after the text of the columns."""
        text = _COLUMNS.encode()
        before, found, after = pickle.dumps(self, _PROTOCOL).partition(
            b"X" + len(text).to_bytes(4, "little") + text
        )
        assert found
        return before, after


def _command(
    reader: Callable[..., DataSourceReader], options: SourceOptions, more: object, columns: str
) -> tuple[Reading, StructType]:
    """In the worker: the reader of a task, and the columns of its rows."""
    read = StructType.fromJson(json.loads(columns))
    return Reading(reader(options, read, more)), read


def plan(said: Mapping[str, str], columns: StructType, *, files: bool) -> dict[str, Any]:
    """The answer to a query: the pickled reader (before and after the columns) and the tasks, in base64.

    With ``files``, those that Spark's own reader takes are listed separately, by task, with their columns.
    """
    options = SourceOptions.of(said)
    if options.system_table:
        found = plan_read(options)
        tasks = SystemTableReader(options, columns, found).partitions()
        return _told(_Command(SystemTableReader, options, _without_files(found)), tasks)
    table = connections.table(options.server, options.table)
    pinned = None
    if options.planned is not None:
        pinned = Pinned(table.info, parts_of_text(options.planned, table.table_id))
    return planned(options, table, columns, pinned, files=files)


def planned(
    options: SourceOptions, table: Table, columns: StructType, pinned: Pinned | None, *, files: bool
) -> dict[str, Any]:
    """The same for known parts of a known table."""
    share = _share(options, table, columns) if files else None
    reader = BatchReader(options, columns, pinned)
    tasks = reader.tasks(share)
    command = _Command(BatchReader, reader.bare_options, None)
    if share is None or not share.groups:
        return _told(command, tasks or [InputPartition(None)])
    return _told(command, tasks) | {"files": share.groups, "schema": share.schema.json()}


def _share(options: SourceOptions, table: Table, columns: StructType) -> ParquetFiles | None:
    """Takes files for Spark's reader, if the query reads plain rows of the table without a limit."""
    limited = options.limit is not None or options.query_limit is not None
    if limited or options.changelog or options.lake_reader != "spark" or not tiered(table.info):
        return None
    config = connections.database(options.server).lake(options.table).config
    return ParquetFiles(Storage(config), table.info.schema, columns, options.parallelism)


def _told(command: _Command, tasks: Iterable[InputPartition]) -> dict[str, Any]:
    packed = (_packed(one) for one in tasks)
    return {"tasks": [_text(one) for one in (*command.parts(), *packed)], "files": [], "schema": ""}


def _packed(task: InputPartition) -> bytes:
    plain = pickle.dumps(task)
    return len(plain).to_bytes(8, "little") + bytes(pa.compress(plain, codec=_CODEC, asbytes=True))


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _without_files(found: SystemTableRead) -> SystemTableRead:
    """Without the files: each task has its own."""
    return replace(found, files=(), rows=None)
