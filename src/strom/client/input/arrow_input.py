"""Anything that holds rows, as batches of one table's schema.

    pyarrow        RecordBatch, Table, RecordBatchReader
    data frames    pandas (its index is left out), polars
    Python         a list of dicts, one dict (a row), a dict of lists (columns), a list of any of the above
    files          Parquet, Arrow, CSV, JSON lines, by their path
    anything else  that has ``__arrow_c_stream__`` or ``__arrow_c_array__`` (DuckDB relations, other readers)

Batches are made one at a time, so that an endless reader streams through. Many small chunks of a table
are joined, because every batch costs a round trip and a header.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from strom.client.input.casting import advice, cast
from strom.client.input.python_rows import column_of
from strom.client.input.row_files.file_format import ENDINGS, format_by_ending
from strom.client.input.schema_fit import SchemaFit, check_nulls
from strom.errors import SchemaMismatch
from strom.model.schema import Schema

ROWS_AT_ONCE = 10_000
"""Python rows that are converted at once."""

ACCEPTED = (
    "a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, a list of dicts, "
    "a dict of lists, an object with __arrow_c_stream__, or the path of a Parquet, Arrow, CSV or JSON-lines file"
)


class Columns(NamedTuple):
    """Rows of Python values, by column."""

    values: Mapping[str, Any]
    rows: int


class ArrowInput:
    """Reads rows for one schema of one table.

    Reading has two steps, so that a caller can fetch a newer schema between them without losing rows of a
    stream: ``portions`` splits the input, ``fit`` makes one portion fit.
    """

    def __init__(
        self,
        schema: Schema,
        *,
        table: str,
        batch_bytes_max: int,
        verb: str = "append",
        whole: Schema | None = None,
    ) -> None:
        """``whole``: the columns a file may have, if these are more than ``schema``."""
        self.schema = schema
        self._target: pa.Schema = schema.to_arrow()
        self._file_target: pa.Schema = (whole or schema).to_arrow()
        self._fit = SchemaFit(schema, table)
        self._batch_bytes_max = batch_bytes_max
        self._verb = verb
        """The method that was called, for messages."""

    def batches(self, data: object) -> Iterator[pa.RecordBatch]:
        """The rows as batches of exactly the table's schema."""
        for portion in self.portions(data):
            yield self.fit(portion)

    def portions(self, data: object) -> Iterator[pa.RecordBatch | Columns]:
        """The rows in portions that each become one batch; none of them is empty."""
        for portion in self._portions(data):
            if (portion.rows if isinstance(portion, Columns) else portion.num_rows) > 0:
                yield portion

    def fit(self, portion: pa.RecordBatch | Columns) -> pa.RecordBatch:
        """A portion as a batch of exactly the table's schema."""
        if isinstance(portion, Columns):
            return self._from_values(portion)
        return self._fit.fit(portion)

    def _portions(self, data: object) -> Iterator[pa.RecordBatch | Columns]:
        if isinstance(data, pa.RecordBatch):
            yield data
        elif isinstance(data, Mapping):
            yield _from_mapping(data)
        elif isinstance(data, (list, tuple)):
            yield from self._from_list(data)
        elif isinstance(data, pa.Table):
            yield from self._joined(data)
        elif isinstance(data, pa.RecordBatchReader):
            yield from data
        elif _is_pandas(data):
            yield from self._joined(pa.Table.from_pandas(data, preserve_index=False))
        elif hasattr(data, "__arrow_c_stream__"):
            yield from _from_stream(data)
        elif hasattr(data, "__arrow_c_array__"):
            yield pa.record_batch(data)
        elif isinstance(data, str | os.PathLike):
            yield from self._from_file(os.fspath(data))
        else:
            raise TypeError(f"{self._verb}() takes {ACCEPTED}, not {type(data).__name__}")

    def _from_file(self, path: str) -> Iterator[pa.RecordBatch]:
        """The rows of a file; ``create_table`` takes the same files."""
        from strom.client.input.row_files.opening import rows_of

        form = format_by_ending(path)
        if form is None:
            raise SchemaMismatch(
                f"{self._verb}() takes {ACCEPTED}; {path!r} is not a file of rows: its ending is none of "
                f"{', '.join(ENDINGS)}"
            )
        if not os.path.exists(path):
            raise SchemaMismatch(f"there is no file {path!r}")
        for batch, _ in rows_of(path, form, self._file_target, ROWS_AT_ONCE):
            yield batch

    def _joined(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        """The table's batches, with small neighbours joined."""
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

    def _from_list(self, items: Sequence[Any]) -> Iterator[pa.RecordBatch | Columns]:
        if not items:
            return
        if isinstance(items[0], Mapping):
            for start in range(0, len(items), ROWS_AT_ONCE):
                yield _from_rows(items[start : start + ROWS_AT_ONCE])
        elif isinstance(items[0], (pa.RecordBatch, pa.Table)):
            for item in items:
                yield from self._portions(item)
        else:
            raise TypeError(f"{self._verb}() takes {ACCEPTED}, not a list of {type(items[0]).__name__}")

    def _from_values(self, given: Columns) -> pa.RecordBatch:
        """Columns of Python values (or arrays) as the table's types."""
        self._fit.check_names(list(given.values))
        arrays = []
        for column in self.schema.columns:
            arrow = self._target.field(column.name).type
            if column.name not in given.values:
                self._fit.check_may_be_missing(column)
                arrays.append(pa.nulls(given.rows, arrow))
                continue
            try:
                array = _array_of(given.values[column.name], arrow)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                self._fit.refuse_values(column, "Python values", error)
            check_nulls(array, column.type, column.name)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._target)


def _from_rows(rows: Sequence[Mapping[str, Any]]) -> Columns:
    given: dict[str, None] = {}
    for row in rows:
        given.update(dict.fromkeys(row))
    return Columns({name: [row.get(name) for row in rows] for name in given}, len(rows))


def _from_mapping(data: Mapping[str, Any]) -> Columns:
    """A dict of columns, or of values (one row)."""
    sizes = {name: len(values) for name, values in data.items() if _is_column(values)}
    if len(sizes) < len(data) or not data:
        return _from_rows([data])
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise SchemaMismatch(f"The columns have different lengths ({listed})", lengths=sizes)
    return Columns(data, next(iter(sizes.values())))


def concatenate(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch with the rows of all batches, which have the same schema."""
    if len(batches) == 1:
        return batches[0]
    joined = pa.Table.from_batches(batches).combine_chunks().to_batches()
    assert len(joined) == 1, "a group of batches is far below Arrow's limit for one chunk"
    return joined[0]


def is_lent(data: object) -> bool:
    """Whether rows lie in memory that the caller may change later: numpy's and pandas'. Arrow's does not change."""
    if isinstance(data, Mapping):
        return any(map(is_lent, data.values()))
    return isinstance(data, np.ndarray) or type(data).__module__.partition(".")[0] == "pandas"


def owned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A copy of the rows."""
    arrays = [pa.concat_arrays([column]) for column in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _array_of(values: Any, arrow: pa.DataType) -> pa.Array:
    """A list is converted value by value; numpy and Arrow arrays as a whole, with no work per row."""
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
    """Checked by name, so that pandas is not imported for this."""
    kind = type(data)
    return kind.__module__.partition(".")[0] == "pandas" and kind.__name__ == "DataFrame"


def _from_stream(data: object) -> pa.RecordBatchReader:
    try:
        return pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(f"A {type(data).__name__} does not hold a table: {error}") from error
