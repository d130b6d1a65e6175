"""Anything that holds rows, as batches of one table's schema.

    pyarrow        RecordBatch, Table, RecordBatchReader
    data frames    pandas (its index is left out), polars
    Python         a list of dicts, one dict (a row), a dict of lists (columns), a list of any of the above
    anything else  that speaks ``__arrow_c_stream__`` or ``__arrow_c_array__`` (DuckDB relations, other readers)

Batches are made one at a time, so that an endless reader streams through. Many small chunks of a table
are joined, because every batch costs a round trip and a header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from strom.client.casting import advice, cast
from strom.client.conform import Conformer, check_nulls
from strom.client.python_rows import column_of
from strom.errors import SchemaMismatch
from strom.model.schema import Schema

ROWS_AT_ONCE = 10_000
"""Python rows converted in one go."""

ACCEPTED = (
    "a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, a list of dicts, "
    "a dict of lists, or an object with __arrow_c_stream__"
)


class ArrowInput:
    """Reads rows for one schema of one table."""

    def __init__(self, schema: Schema, *, table: str, batch_bytes_max: int) -> None:
        self.schema = schema
        self._target: pa.Schema = schema.to_arrow()
        self._conformer = Conformer(schema, table)
        self._batch_bytes_max = batch_bytes_max

    def batches(self, data: object) -> Iterator[pa.RecordBatch]:
        """The rows as batches of exactly the table's schema; batches without rows are left out."""
        for batch in self._read(data):
            if batch.num_rows:
                yield batch

    def _read(self, data: object) -> Iterator[pa.RecordBatch]:
        if isinstance(data, pa.RecordBatch):
            yield self._conformer.conform(data)
        elif isinstance(data, Mapping):
            yield self._from_mapping(data)
        elif isinstance(data, (list, tuple)):
            yield from self._from_list(data)
        else:
            for batch in self._arrow_batches(data):
                yield self._conformer.conform(batch)

    def _arrow_batches(self, data: object) -> Iterable[pa.RecordBatch]:
        if isinstance(data, pa.Table):
            return self._joined(data)
        if isinstance(data, pa.RecordBatchReader):
            return data
        if _is_pandas(data):
            return self._joined(pa.Table.from_pandas(data, preserve_index=False))
        if hasattr(data, "__arrow_c_stream__"):
            return _from_stream(data)
        if hasattr(data, "__arrow_c_array__"):
            return [pa.record_batch(data)]
        raise TypeError(f"append() takes {ACCEPTED}, not {type(data).__name__}")

    def _joined(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """The table's batches, small neighbours made one."""
        if table.num_columns == 0 or table.column(0).num_chunks <= 1:
            yield from table.to_batches()
            return
        group: list[pa.RecordBatch] = []
        size = 0
        for batch in table.to_batches():
            if group and size + batch.nbytes > self._batch_bytes_max:
                yield concatenate(group)
                group, size = [], 0
            group.append(batch)
            size += batch.nbytes
        if group:
            yield concatenate(group)

    def _from_list(self, items: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        if not items:
            return
        if isinstance(items[0], Mapping):
            for start in range(0, len(items), ROWS_AT_ONCE):
                yield self._from_rows(items[start : start + ROWS_AT_ONCE])
        elif isinstance(items[0], (pa.RecordBatch, pa.Table)):
            for item in items:
                yield from self._read(item)
        else:
            raise TypeError(f"append() takes {ACCEPTED}, not a list of {type(items[0]).__name__}")

    def _from_rows(self, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        given: dict[str, None] = {}
        for row in rows:
            given.update(dict.fromkeys(row))
        columns = {name: [row.get(name) for row in rows] for name in given}
        return self._from_values(columns, len(rows))

    def _from_mapping(self, data: Mapping[str, Any]) -> pa.RecordBatch:
        sizes = {name: len(values) for name, values in data.items() if _is_column(values)}
        if len(sizes) < len(data) or not data:
            return self._from_rows([data])
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{name}: {size}" for name, size in sizes.items())
            raise SchemaMismatch(f"The columns have different lengths ({listed})", lengths=sizes)
        return self._from_values(data, next(iter(sizes.values())))

    def _from_values(self, given: Mapping[str, Any], rows: int) -> pa.RecordBatch:
        """Columns of Python values (or arrays) by the table's own types."""
        self._conformer.check_names(list(given))
        arrays = []
        for column in self.schema.columns:
            arrow = self._target.field(column.name).type
            if column.name not in given:
                self._conformer.check_may_be_missing(column)
                arrays.append(pa.nulls(rows, arrow))
                continue
            try:
                array = _array_of(given[column.name], arrow)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                self._conformer.refuse_values(column, "Python values", error)
            check_nulls(array, column.type, column.name)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._target)


def concatenate(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch with the rows of all, which have one schema."""
    if len(batches) == 1:
        return batches[0]
    joined = pa.Table.from_batches(batches).combine_chunks().to_batches()
    assert len(joined) == 1, "a group of batches is far below Arrow's limit for one chunk"
    return joined[0]


def _array_of(values: Any, arrow: pa.DataType) -> pa.Array:
    """A list goes by its values; numpy and Arrow arrays go as they are, without a step per row."""
    if isinstance(values, (list, tuple)):
        return column_of(values, arrow)
    found = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    problem = advice(found.type, arrow)
    if problem is not None:
        raise pa.ArrowInvalid(f"found {found.type} values; {problem}")
    return cast(found, arrow)


def _is_column(values: object) -> bool:
    return hasattr(values, "__len__") and not isinstance(values, (str, bytes, bytearray, memoryview, Mapping))


def _is_pandas(data: object) -> bool:
    """Told by name, so that pandas is not imported for this question."""
    kind = type(data)
    return kind.__module__.partition(".")[0] == "pandas" and kind.__name__ == "DataFrame"


def _from_stream(data: object) -> pa.RecordBatchReader:
    try:
        return pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(f"A {type(data).__name__} does not hold a table: {error}") from error
