"""System tables for ``spark.read``: ``t$lake`` (the lake alone), ``t$snapshots``, ``t$offsets``.

``$snapshots`` and ``$offsets`` have few rows: they are fetched when the DataFrame is made, and travel with it. For
``$lake`` the files of one snapshot are pinned then; tasks read them without asking a server. A filter skips files too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructField, StructType

from strom.api.system_table import SystemTable
from strom.client.plan.filters import filter_of
from strom.errors import InvalidRequest
from strom.lake.files.joined_batches import joined
from strom.lake.files.storage import Storage
from strom.lake.read.union_files import read_one
from strom.lake.read.union_plan import UnionPlan
from strom.model.lake.lake import LakeConfig
from strom.model.schema import Schema
from strom.model.types import from_arrow
from strom.spark.connect import connections
from strom.spark.connect.filters import combined
from strom.spark.connect.options import SourceOptions
from strom.spark.connect.spark_errors import translate_errors_each
from strom.spark.connect.tasks import LakePart, ReadTask, Sizes, cut_and_packed, parts_of
from strom.spark.connect.types import Fit, arrow_schema, spark_type
from strom.spark.source.task_reader import packed_rows


@dataclass(frozen=True)
class SystemTableRead:
    """What a DataFrame of a system table reads, decided once."""

    schema: StructType
    rows: bytes | None = None
    """All rows, if they are few."""
    files: tuple[LakePart, ...] = ()
    config: LakeConfig | None = None
    of: Schema | None = None
    """The columns of the base table."""
    table_id: int = -1


def plan_read(options: SourceOptions) -> SystemTableRead:
    """Decide what is read."""
    if options.start is not None or options.end is not None:
        raise InvalidRequest(
            f"{options.table} has no start= and end=; of $lake say at=, a snapshot or a time"
        )
    database = connections.database(options.server)
    table = database.system_table(options.table)
    full = StructType([_field(one) for one in table.schema])
    names = full.names if options.columns is None else list(options.columns)
    scan = table.scan(columns=names, where=options.where, limit=options.limit, at=options.at)
    schema = StructType([full[name] for name in names])
    plan = scan.plan()
    if not isinstance(plan, UnionPlan):
        return SystemTableRead(schema, rows=packed_rows(scan.to_arrow()))
    base = connections.table(options.server, options.table.partition("$")[0])
    files = tuple(part for part in parts_of(plan) if isinstance(part, LakePart))
    return SystemTableRead(
        schema, None, files, database.lake(base.name).config, base.info.schema, base.table_id
    )


def _field(one: pa.Field) -> StructField:
    return StructField(one.name, spark_type(from_arrow(one.type, nullable=one.nullable)), one.nullable)


def size_of(table: SystemTable) -> dict[str, int]:
    """Estimated rows and bytes."""
    plan = table.scan().plan()
    if not isinstance(plan, UnionPlan):
        return {"rows": 100, "bytes": 10_000}
    return {"rows": sum(one.rows for one in plan.files), "bytes": sum(one.size for one in plan.files)}


class SystemTableReader(DataSourceReader):
    """Reads a system table. Pickled for the tasks: plain data only."""

    def __init__(self, options: SourceOptions, schema: StructType, read: SystemTableRead) -> None:
        self._options = options
        self._schema = schema
        self._read = read

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks."""
        if self._read.rows is not None:
            return [ReadTask(-1, 0, (), rows=self._read.rows)]
        options = self._options
        if options.limit is not None:
            return [ReadTask(self._read.table_id, 0, self._read.files)]
        groups = cut_and_packed(
            self._read.files,
            Sizes({}),
            split_bytes=options.split_bytes,
            split_rows=options.split_rows,
            tasks_wanted=options.parallelism,
        )
        return [ReadTask(self._read.table_id, 0, group) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if not isinstance(partition, ReadTask):
            return iter(())
        return translate_errors_each(lambda: self._rows(partition), server=self._options.server)

    def _rows(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        left = self._options.limit
        for batch in joined(self._found(task)):
            if left is not None:
                batch = batch.slice(0, max(left, 0))
                left -= batch.num_rows
            if batch.num_rows:
                yield batch

    def _found(self, task: ReadTask) -> Iterator[pa.RecordBatch]:
        want = arrow_schema(self._schema)
        if task.rows is not None:
            with pa.ipc.open_stream(task.rows) as stream:
                fit = Fit(stream.schema, want)
                yield from (fit(batch) for batch in stream)
            return
        config, schema = self._read.config, self._read.of
        assert config is not None
        assert schema is not None
        found = filter_of(combined(self._options.where, ()), schema)
        where = None if found is None else found.predicate
        storage = Storage(config)
        for plan in task.plans:
            assert isinstance(plan, UnionPlan)
            for file in plan.files:
                for batch in read_one(storage, plan, file, schema, self._schema.names, where):
                    yield Fit(batch.schema, want)(batch)
