"""Upserts and deletes rows of one primary-key table.

Like every writer it batches in the background, in order and once per bucket, within a memory limit; a failure is raised
by the next write, by ``flush`` and by ``close``. Changes of one key happen in the order they were given.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import pyarrow as pa

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import WriterOptions
from strom.client.cluster.written import WrittenTo
from strom.client.input.arrow_input import ArrowInput, Columns
from strom.client.input.filler_columns import filler
from strom.client.input.key_input import key_schema, keyed, picked
from strom.client.write.row_writer import RowWriter, check_kind
from strom.client.write.upsert_call import (
    ALL,
    DELETE,
    UPSERT,
    BucketChanges,
    MixedChanges,
    UpsertCall,
    part_of,
)
from strom.model.schema import Schema

KIND = "__kind"
"""The column that carries what is done with each row, until rows are routed to buckets."""

Kept = TypeVar("Kept")
_Shape = tuple[int, tuple[int, ...]]
"""The schema of rows, and which of its columns they have."""


class KeyWriter(RowWriter):
    """The writer of a primary-key table."""

    def __init__(self, cluster: Cluster, table: TableInfo, options: WriterOptions | None = None) -> None:
        check_kind(table, keyed=True)
        options = options or WriterOptions()
        self._call = UpsertCall(table, options, timeout_ms=cluster.options.request_timeout_ms)
        super().__init__(cluster, table, options, self._call)
        self._upserts: dict[_Shape, UpsertIntake] = {}
        self._deletes: dict[int, DeleteIntake] = {}
        self._mixed: dict[_Shape, MixedIntake] = {}

    @property
    def written(self) -> WrittenTo:
        return self._call.written

    def upsert_steps(
        self, data: object, columns: Sequence[str] | None = None, *, aside: bool = False
    ) -> Iterator[Awaitable[object]]:
        return self._steps(
            data, lambda table: self._intake(self._upserts, UpsertIntake, table, columns), aside=aside
        )

    def delete_steps(self, keys: object, *, aside: bool = False) -> Iterator[Awaitable[object]]:
        return self._steps(keys, self._delete_intake, aside=aside)

    def change_steps(
        self, rows: pa.RecordBatch, kinds: pa.UInt8Array, columns: Sequence[str] | None = None
    ) -> Iterator[Awaitable[object]]:
        return self._steps(
            MixedRows(rows, kinds),
            lambda table: self._intake(self._mixed, MixedIntake, table, columns),
            aside=False,
        )

    def _intake(
        self,
        known: dict[_Shape, Kept],
        make: Callable[..., Kept],
        table: TableInfo,
        names: Sequence[str] | None,
    ) -> Kept:
        """The intake of rows with these columns, made once."""
        columns = _targets(table.schema, names)
        key = (table.schema.schema_id, columns)
        intake = known.get(key)
        if intake is None:
            form = self._call.form_of(table.schema, columns)
            intake = known[key] = make(form, self._call.form(form).schema, table, self._options)
        return intake

    def _delete_intake(self, table: TableInfo) -> DeleteIntake:
        intake = self._deletes.get(table.schema.schema_id)
        if intake is None:
            form = self._call.form_of(table.schema, _targets(table.schema, None))
            intake = DeleteIntake(form, self._call.form(form).schema, table, self._options)
            self._deletes[table.schema.schema_id] = intake
        return intake


class UpsertIntake(ArrowInput):
    """Rows of some columns."""

    def __init__(self, form: int, schema: Schema, table: TableInfo, options: WriterOptions) -> None:
        super().__init__(
            schema,
            table=str(table.path),
            batch_bytes_max=options.batch_bytes_max,
            verb="upsert",
            whole=table.schema,
        )
        self.form = form
        self._partial = len(schema.columns) < len(table.schema.columns)

    def portions(self, data: object) -> Iterator[pa.RecordBatch | Columns]:
        """For a partial update, drop the columns that are not written."""
        for portion in super().portions(data):
            yield picked(portion, self.schema.names) if self._partial else portion

    def piece(self, batch: pa.RecordBatch) -> BucketChanges:
        """The rows, to be written."""
        return BucketChanges(batch, UPSERT)


class DeleteIntake(ArrowInput):
    """Keys; the other columns get the cheapest values, because nobody reads them."""

    def __init__(self, form: int, schema: Schema, table: TableInfo, options: WriterOptions) -> None:
        keys = key_schema(table.schema, table.schema.primary_key)
        super().__init__(
            keys, table=f"the key of {table.path}", batch_bytes_max=options.batch_bytes_max, verb="delete"
        )
        self.form = form
        self._whole = schema
        self._places = {name: position for position, name in enumerate(keys.names)}

    def portions(self, data: object) -> Iterator[pa.RecordBatch | Columns]:
        """Keys may be bare values if the key is one column."""
        return super().portions(keyed(data, self.schema.names))

    def fit(self, portion: pa.RecordBatch | Columns) -> pa.RecordBatch:
        """A portion as a batch of all writable columns."""
        keys = super().fit(portion)
        arrays = []
        for column, field in zip(self._whole.columns, self._whole.to_arrow(), strict=True):
            place = self._places.get(column.name)
            arrays.append(filler(field, keys.num_rows) if place is None else keys.column(place))
        return pa.RecordBatch.from_arrays(arrays, schema=self._whole.to_arrow())

    def piece(self, batch: pa.RecordBatch) -> BucketChanges:
        """The keys, to be deleted."""
        return BucketChanges(batch, DELETE)


class MixedRows(NamedTuple):
    """Rows, and what is done with each of them."""

    rows: pa.RecordBatch
    kinds: pa.UInt8Array


class MixedIntake(UpsertIntake):
    """Rows of some columns, each to be written or deleted. The kinds travel as a last column until rows are routed."""

    def portions(self, data: object) -> Iterator[pa.RecordBatch | Columns]:
        """The rows with their kinds, as one batch."""
        assert isinstance(data, MixedRows)
        for portion in super().portions(data.rows):
            assert isinstance(portion, pa.RecordBatch)
            yield portion.append_column(KIND, data.kinds)

    def fit(self, portion: pa.RecordBatch | Columns) -> pa.RecordBatch:
        """A portion as a batch of the columns that are written, and the kinds."""
        assert isinstance(portion, pa.RecordBatch)
        last = portion.num_columns - 1
        return super().fit(portion.remove_column(last)).append_column(KIND, portion.column(last))

    def piece(self, batch: pa.RecordBatch) -> MixedChanges:  # type: ignore[override]
        """The rows and their kinds, separated."""
        last = batch.num_columns - 1
        kinds = batch.column(last).to_numpy(zero_copy_only=False).tobytes()
        return MixedChanges(batch.remove_column(last), kinds)


def _targets(schema: Schema, names: Sequence[str] | None) -> tuple[int, ...]:
    """The positions that an upsert writes, ascending; empty for all. A generated column is never written."""
    if names is None:
        if not schema.auto_increment:
            return ALL
        names = [name for name in schema.names if name not in schema.auto_increment]
    wanted = tuple(sorted(schema.projected(names)))
    part_of(schema, wanted)
    return ALL if len(wanted) == len(schema.columns) else wanted
