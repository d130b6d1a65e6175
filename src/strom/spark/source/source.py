"""``format("strom")``: Spark asks it for a table's columns, readers and writers.

Spark makes one for each DataFrame, keeps it pickled, and calls it for every action. So what is decided while the
columns are computed (``schema``) holds for the life of the DataFrame: the offsets to read, unless ``pin=query`` leaves
that to the first action.

Writers, catalog answers and stream readers are imported when they are needed.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from importlib import import_module
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from strom.errors import Refused
from strom.spark.connect import connections
from strom.spark.connect.options import ConnectOptions, SourceOptions
from strom.spark.connect.spark_errors import translate_errors
from strom.spark.source.part_json import parts_of_text
from strom.spark.source.pinned_read import Pinned, pin, schema_of


class StromSource(DataSource):
    """One table, as ``.option(…)`` described it."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._pinned: Pinned | None = None
        self._system_read: Any = None
        """The same for a system table (``system_tables.py``)."""
        self._schema_id: int | None = None
        """The table's schema when its columns were computed; None if the user gave them."""

    @classmethod
    def name(cls) -> str:
        """The name in ``format(…)``."""
        return "strom"

    def schema(self) -> StructType | str:
        """The columns; for the SQL catalog (``_op``) an answer in the metadata of a field."""
        if "_op" in self.options:
            answer: StructType | str = _hook("catalog.catalog_calls", "answer")(self.options)
            return answer
        return translate_errors(self._look, server=self._server)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader for a batch."""
        from strom.spark.source.batch_reader import BatchReader, FilteringReader

        options = translate_errors(lambda: SourceOptions.of(self.options))
        if options.system_table:
            system = self._system_read or translate_errors(
                lambda: _hook("source.system_tables", "plan_read")(options), server=options.server
            )
            made: DataSourceReader = _hook("source.system_tables", "SystemTableReader")(
                options, schema, system
            )
            return made
        kind = FilteringReader if options.push_filters and _filters_come() else BatchReader
        if self._pinned is None and options.planned is not None:
            self._pinned = translate_errors(lambda: _planned(options), server=options.server)
        return kind(options, schema, self._pinned)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader that follows the table."""
        from strom.spark.source.stream_reader import stream_reader

        return stream_reader(self.options, schema, self._schema_id)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer for a DataFrame."""
        made: DataSourceWriter = _hook("sink.batch_writer", "batch_writer")(self.options, schema, overwrite)
        return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """A writer for a stream. Spark passes the arguments by name."""
        made: DataSourceStreamWriter = _hook("sink.stream_writer", "stream_writer")(
            self.options, schema, overwrite
        )
        return made

    @property
    def _server(self) -> ConnectOptions | None:
        """For error messages; None if the option is missing."""
        return ConnectOptions.of(self.options) if self.options.get("bootstrap.servers") else None

    def _look(self) -> StructType:
        options = SourceOptions.of(self.options)
        if options.system_table:
            self._system_read = _hook("source.system_tables", "plan_read")(options)
            schema: StructType = self._system_read.schema
            return schema
        table = connections.table(options.server, options.table)
        found = schema_of(options, table.info.schema)
        if options.columns is None:
            self._schema_id = table.info.schema.schema_id
        if options.planned is not None:
            self._pinned = _planned(options)
        elif options.pin == "load":
            try:
                self._pinned = pin(options, table)
            except Refused:
                pass  # allowed in a stream but not in a batch: the reader raises it
        return found


def _planned(options: SourceOptions) -> Pinned:
    """What was decided when the DataFrame was made."""
    assert options.planned is not None
    table = connections.table(options.server, options.table)
    return Pinned(table.info, parts_of_text(options.planned, table.table_id))


def _filters_come() -> bool:
    """Whether Spark will offer its filters to the reader it asks for now.

    Spark refuses a reader that takes filters while ``spark.sql.python.filterPushdown.enabled`` is off, the default. A
    source cannot see the setting, so we look into the calling frame: PySpark's planning has it in ``enable_pushdown``.
    """
    frame = sys._getframe(2)
    return bool(frame.f_locals.get("enable_pushdown", True))


def _hook(module: str, name: str) -> Any:
    return getattr(import_module(f"strom.spark.{module}"), name)
