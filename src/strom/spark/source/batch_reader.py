"""``spark.read``: a table at an instant, a log or a changelog between two places.

Planning decides offsets and tasks; a task reads exactly its offsets, so a retry returns the same rows. Filters with the
same meaning on the server are applied there; a filter that names whole keys is answered by lookups while planning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from strom.api.table import Table
from strom.client.plan.filters import filter_of
from strom.client.plan.key_filter import keys_named
from strom.model.filters.predicate import Predicate
from strom.spark.cold.parquet_files import ParquetFiles
from strom.spark.connect import connections
from strom.spark.connect.filters import combined, predicate_of
from strom.spark.connect.options import SourceOptions
from strom.spark.connect.spark_errors import translate_errors, translate_errors_each
from strom.spark.connect.tasks import ReadTask, cut_and_packed
from strom.spark.source.bucket_sizes import sizes_of
from strom.spark.source.pinned_read import Pinned, check_schema, pin
from strom.spark.source.task_reader import QueryRead, packed_rows

LOOKUP_ROWS_MAX = 10_000
"""More rows are better scanned by tasks than shipped with one."""


class BatchReader(DataSourceReader):
    """Reads one table once. Pickled for the tasks: plain data only."""

    def __init__(self, options: SourceOptions, schema: StructType, pinned: Pinned | None) -> None:
        self._options = options
        self._schema = schema
        self._pinned = pinned
        self._pushed: list[Predicate] = []

    def __getstate__(self) -> dict[str, Any]:
        """For the tasks, without the plan: each task carries its own part."""
        return {**self.__dict__, "_options": self.bare_options, "_pinned": None}

    @property
    def bare_options(self) -> SourceOptions:
        """The options without the plan."""
        return replace(self._options, planned=None)

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks."""
        return translate_errors(self.tasks, server=self._options.server)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if not isinstance(partition, ReadTask):
            return iter(())  # Spark's placeholder for no tasks
        wanted = self._wanted()
        return translate_errors_each(lambda: wanted.rows(partition), server=self._options.server)

    def _wanted(self) -> QueryRead:
        where = combined(self._options.where, self._pushed)
        return QueryRead(self._options, self._schema, where, self._limit)

    @property
    def _limit(self) -> int | None:
        limits = [one for one in (self._options.limit, self._options.query_limit) if one is not None]
        return min(limits, default=None)

    # --- planning -----------------------------------------------------------------------------------------------

    def tasks(self, share: ParquetFiles | None = None) -> list[ReadTask]:
        """The tasks, raising Strom's own errors; ``share`` takes the files that Spark reads itself."""
        options = self._options
        where = combined(options.where, self._pushed)
        if self._pinned is not None:
            known = self._pinned.info
            table = connections.known_table(
                options.server, options.table, known.table_id, known.schema.schema_id
            )
        else:
            table = connections.table(options.server, options.table)
        pinned = self._pinned or pin(options, table, where)
        schema = pinned.info.schema
        check_schema(options, schema, self._schema)
        found = self._look_up(table, where) if self._pinned is None else None
        if found is not None:
            return [ReadTask(pinned.info.table_id, schema.schema_id, (), rows=packed_rows(found))]
        filter_of(where, schema)  # a wrong column raises here, once, instead of in every task
        parts = pinned.within(where)
        if share is not None:
            parts = share.take(parts)
        if self._limit is not None:
            groups = [tuple(parts)] if parts and self._limit > 0 else []
        else:
            sizes = sizes_of(table, parts, self._schema)
            groups = cut_and_packed(
                parts,
                sizes,
                split_bytes=options.split_bytes,
                split_rows=options.split_rows,
                tasks_wanted=options.parallelism,
                beside=0 if share is None else share.bytes,
            )
        return [ReadTask(pinned.info.table_id, schema.schema_id, group) for group in groups]

    def _look_up(self, table: Table, where: Predicate | None) -> pa.Table | None:
        """The rows of the keys that the filter names, if it names whole keys and the current rows are wanted."""
        options = self._options
        if options.changelog or options.at is not None or where is None:
            return None
        if not table.info.description.has_primary_key:
            return None
        found = filter_of(where, table.info.schema)
        named = keys_named(table.info, found)
        if named is None or named.keys.num_rows > LOOKUP_ROWS_MAX:
            return None
        columns = [name for name in self._schema.names if table.info.schema.find(name) is not None]
        return table.scan(columns or None, where=where, limit=self._limit).to_arrow()


class FilteringReader(BatchReader):
    """Takes Spark's filters (``pushFilters`` and ``spark.sql.python.filterPushdown.enabled``).

    Not the default, because Spark 4.3 keeps one plan for all queries of a DataFrame: the filters of one query would
    drop rows of another. The SQL catalog plans each query and always pushes.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters that the server can apply; return the rest."""
        return translate_errors(lambda: self._take(filters), server=self._options.server)

    def _take(self, filters: list[Filter]) -> list[Filter]:
        if self._options.limit is not None:
            return list(filters)  # the limit applies before Spark's filters
        if self._pinned is not None:
            schema = self._pinned.info.schema
        else:
            schema = connections.table(self._options.server, self._options.table).info.schema
        left = []
        for one in filters:
            predicate = predicate_of(one, schema)
            if predicate is None:
                left.append(one)
            else:
                self._pushed.append(predicate)
        return left
