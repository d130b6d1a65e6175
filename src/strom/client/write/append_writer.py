"""Appends rows to one log table."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator

import pyarrow as pa

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import WriterOptions
from strom.client.input.arrow_input import ArrowInput
from strom.client.write.row_writer import RowWriter
from strom.client.write.write_call import AppendCall


class AppendWriter(RowWriter):
    """The writer of a log table."""

    def __init__(self, cluster: Cluster, table: TableInfo, options: WriterOptions | None = None) -> None:
        options = options or WriterOptions()
        self._call = AppendCall(table, options, timeout_ms=cluster.options.request_timeout_ms)
        super().__init__(cluster, table, options, self._call)
        self._intake = self._intake_for(table)

    def append_steps(self, data: object, *, aside: bool = False) -> Iterator[Awaitable[object]]:
        return self._steps(data, self._intake_of, aside=aside)

    def _intake_of(self, table: TableInfo) -> AppendIntake:
        if table.schema is not self._intake.schema:
            self._intake = self._intake_for(table)
        return self._intake

    def _intake_for(self, table: TableInfo) -> AppendIntake:
        return AppendIntake(self._call.form_of(table.schema), table, self._options)


class AppendIntake(ArrowInput):
    """Rows of all columns; a piece is the rows as they are."""

    def __init__(self, form: int, table: TableInfo, options: WriterOptions) -> None:
        super().__init__(table.schema, table=str(table.path), batch_bytes_max=options.batch_bytes_max)
        self.form = form

    def piece(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows."""
        return batch
