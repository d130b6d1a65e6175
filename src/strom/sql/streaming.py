"""Hot rows for DuckDB: an object that it takes for an Arrow dataset and asks for columns and a filter.

DuckDB trusts the dataset to apply the filter. The servers already apply one, derived from the whole query
(``table_needs.py``); DuckDB's is applied here to the rows they send, column-wise.

After ``begin``, the first read finds rows that have already been fetched (``read_ahead.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from strom.client.read.direct_scan import BlockingChunks, Loop
from strom.client.read.row_scan import Rest, RowScan
from strom.model.filters.predicate import Predicate
from strom.sql.read_ahead import ReadAhead
from strom.sql.stand_ins import nullable

Batches = Callable[[Sequence[str]], Generator[pa.RecordBatch, None, None]]
"""The rows of a table with these columns."""


def scan_batches(scan: RowScan, run: Loop) -> Generator[pa.RecordBatch, None, None]:
    """The rows of a scan, for a blocking thread."""
    chunks = BlockingChunks.of(scan, run, ordered=True)
    rest = Rest(scan.streaming_limit)
    try:
        while not rest.empty and (chunk := chunks.next()) is not None:
            yield from rest.take(scan.read(chunk))
    finally:
        chunks.close()
        if (stream := chunks.stream) is not None:
            run(stream.close())


class StreamedRows(ds.InMemoryDataset):  # type: ignore[misc]
    """Looks like a dataset; every request of DuckDB reads its rows again.

    ``columns``: those the query is known to use; others are fetched only if DuckDB asks. ``passed``: a filter that all
    rows of ``batches`` pass already; where DuckDB asks for just that, nothing is left to do.
    """

    def __init__(
        self,
        schema: pa.Schema,
        columns: Sequence[str],
        batches: Batches,
        passed: Predicate | None = None,
    ) -> None:
        self._problem: list[BaseException] = []
        self._ahead: list[ReadAhead] = []
        full = nullable(schema)
        super().__init__(pa.Table.from_batches([], schema=full))
        self._full = full
        self._wanted = frozenset(columns)
        self._batches = batches
        self._passed = None if passed is None else passed.to_arrow()

    def begin(self) -> None:
        """Fetch the columns that the query uses now, before DuckDB asks for them."""
        order = self._in_order(self._wanted)
        if order:
            self._ahead.append(ReadAhead(self._batches(order)))

    def close(self) -> None:
        """Drop what was fetched and not read."""
        while self._ahead:
            try:
                self._ahead.pop().close()
            except IndexError:
                return  # another thread came first

    def __del__(self) -> None:
        self.close()  # the query is gone

    @property
    def problem(self) -> BaseException | None:
        """The error that stopped a read: DuckDB would wrap it in a message of its own."""
        return self._problem[0] if self._problem else None

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **options: Any) -> _Reading:
        """Called by DuckDB, once for every time the query reads the table."""
        given = list(self._full.names) if columns is None else list(columns)
        needed = self._wanted.union(given)
        if filter is not None and self._passed is not None and filter.equals(self._passed):
            filter = None
        if filter is not None and not _knows(self._full, needed, filter):
            needed = frozenset(self._full.names)
        order = self._in_order(needed)
        schema = pa.schema([self._full.field(name) for name in given])
        return _Reading(schema, lambda: self._read(order, given, schema, filter))

    def _read(
        self, order: list[str], given: list[str], schema: pa.Schema, filter: Any
    ) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._rows(order):
                yield from _shaped(batch, given, schema, filter)
        except GeneratorExit:
            raise
        except BaseException as error:
            self._problem.append(error)
            raise

    def _rows(self, order: list[str]) -> Iterator[pa.RecordBatch]:
        if order == self._in_order(self._wanted):
            try:
                return self._ahead.pop().batches()  # of two threads that ask at once, one gets it
            except IndexError:
                pass
        return self._batches(order)

    def _in_order(self, names: frozenset[str]) -> list[str]:
        return [name for name in self._full.names if name in names]


class _Reading:
    """What DuckDB takes for a scanner."""

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self.projected_schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches())


def _knows(schema: pa.Schema, names: frozenset[str], filter: Any) -> bool:
    """Whether a filter can be computed from these columns."""
    empty = pa.Table.from_batches([], schema=pa.schema([field for field in schema if field.name in names]))
    try:
        empty.filter(filter)
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return False
    return True


def _shaped(
    batch: pa.RecordBatch, given: list[str], schema: pa.Schema, filter: Any
) -> Iterator[pa.RecordBatch]:
    if filter is None:
        yield pa.RecordBatch.from_arrays([batch.column(name) for name in given], schema=schema)
        return
    table = pa.Table.from_batches([batch]).filter(filter).select(given)
    for part in table.to_batches():
        yield pa.RecordBatch.from_arrays(part.columns, schema=schema)
