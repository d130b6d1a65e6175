"""Appends rows to one log table."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator

import pyarrow as pa

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import WriterOptions
from strom.client.input.arrow_input import ArrowInput
from strom.client.write.delivery import new_writer_id
from strom.client.write.row_writer import RowWriter
from strom.client.write.write_call import AppendCall
from strom.errors import NotPrimaryKeyTable


class AppendWriter(RowWriter):
    """Appends to a log table. Made by ``open``."""

    def __init__(self, cluster: Cluster, table: TableInfo, options: WriterOptions, *, writer_id: int) -> None:
        self._call = AppendCall(table, options, timeout_ms=cluster.options.request_timeout_ms)
        super().__init__(cluster, table, options, self._call, writer_id=writer_id)
        self._intake = self._intake_for(table)

    @classmethod
    async def open(
        cls, cluster: Cluster, table: TableInfo, options: WriterOptions | None = None
    ) -> AppendWriter:
        """A writer for a log table."""
        if table.description.has_primary_key:
            raise NotPrimaryKeyTable(f"{table.path} is a primary-key table: rows are upserted, not appended")
        writer_id = await new_writer_id(cluster, table)
        return cls(cluster, table, options or WriterOptions(), writer_id=writer_id)

    async def append(self, data: object) -> None:
        """Take rows; they are on their way when this returns, and safe after ``flush``."""
        async with self._turn:
            for need in self.steps(data, aside=True):
                await need

    def steps(self, data: object, *, aside: bool = False) -> Iterator[Awaitable[object]]:
        """The work of ``append``, for whoever awaits what is yielded."""
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
