"""``format("strom")``: what Spark asks for a table's columns, its readers and its writers.

Spark makes one of these when a DataFrame is made, keeps it pickled, and asks it again for every action. So whatever is
decided while the columns are worked out (``schema``) holds for the life of the DataFrame.

Writers, catalog answers and stream readers live in their own modules and are imported when they are asked for.
"""

from __future__ import annotations

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


class StromSource(DataSource):
    """One table, as ``.option(…)`` described it."""

    @classmethod
    def name(cls) -> str:
        """What stands in ``format(…)``."""
        return "strom"

    def schema(self) -> StructType | str:
        """The columns; for the SQL catalog (``_op``) an answer in the metadata of a field."""
        if "_op" in self.options:
            answer: StructType | str = _hook("catalog_calls", "answer")(self.options)
            return answer
        raise NotImplementedError

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads rows that are there."""
        raise NotImplementedError

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Follows the table."""
        raise NotImplementedError

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Writes a DataFrame."""
        made: DataSourceWriter = _hook("batch_writer", "batch_writer")(self.options, schema, overwrite)
        return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Writes a stream. Spark passes these by name."""
        made: DataSourceStreamWriter = _hook("stream_writer", "stream_writer")(
            self.options, schema, overwrite
        )
        return made


def _hook(module: str, name: str) -> Any:
    return getattr(import_module(f"strom.spark.{module}"), name)
