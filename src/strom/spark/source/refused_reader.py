"""A stream that cannot be read: it raises its error as soon as Spark asks it anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from strom.errors import StromError
from strom.spark.connect.options import ConnectOptions
from strom.spark.connect.spark_errors import translated_error


class RefusedReader(DataSourceStreamReader):
    """Raises the reason why a stream is refused."""

    def __init__(self, error: StromError, server: ConnectOptions | None) -> None:
        self._error = error
        self._server = server

    def initialOffset(self) -> dict[str, Any]:
        """The error."""
        raise translated_error(self._error, self._server)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:
        """The error."""
        raise translated_error(self._error, self._server)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The error."""
        raise translated_error(self._error, self._server)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The error."""
        raise translated_error(self._error, self._server)
