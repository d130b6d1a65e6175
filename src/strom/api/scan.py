"""The blocking API of a scan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strom import aio
from strom.client.cluster.blocking import Background
from strom.client.plan.key_plan import KeyScanPlan
from strom.client.plan.log_plan import ScanPlan
from strom.client.read.direct_scan import BlockingChunks
from strom.client.read.frames import duckdb_of, pandas_of, polars_of
from strom.client.read.row_scan import Collected, Rest
from strom.client.read.source import ReadStatistics
from strom.client.show.row_text import PREVIEW_ROWS, Preview, shown
from strom.errors import LakeCorrupt

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

    from strom.lake.read.union_plan import UnionPlan


class Scan:
    """The rows of a table at one instant, fixed when they are first read.

    Nothing is read before that. Every read gives the same rows in the same order (partition, bucket, offset). It
    implements Arrow's stream interface: pass it to polars, DuckDB or pyarrow as it is.

    >>> scan = table.scan(columns=["id", "price"], where="price > 10")
    >>> scan.to_arrow()
    >>> pl.DataFrame(scan)
    """

    def __init__(
        self, background: Background, core: aio.Scan, first: Callable[[int], aio.Scan] | None = None
    ) -> None:
        self._background = background
        self._core = core
        self._first = first
        """Builds the same scan with a row limit, so that a preview does not pin this scan's instant."""

    def __repr__(self) -> str:
        return shown(self._plainly, self._preview, Preview.text)

    def _repr_html_(self) -> str:
        return shown(escape(self._plainly), self._preview, Preview.html)

    @property
    def _plainly(self) -> str:
        return f"Scan({', '.join(self.schema.names)})"

    def _preview(self) -> Preview:
        again = self if self._first is None else Scan(self._background, self._first(PREVIEW_ROWS + 1))
        return Preview(self.schema, again.to_batches())

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result.

        >>> table.scan(columns=["id"]).schema.names
        ['id']
        """
        return self._core.schema

    @property
    def statistics(self) -> ReadStatistics:
        """What was read so far, and what the server skipped.

        >>> scan.statistics.bytes_skipped
        1048576
        """
        return self._core.statistics

    def plan(self) -> ScanPlan | KeyScanPlan | UnionPlan:
        """The offsets this scan reads, fixed from now on; of a primary-key table the instant of every bucket.

        >>> scan.plan()
        ScanPlan(4 buckets, 1,000,000 rows before filters)
        """
        return self._background.run(self._core.plan())

    def to_arrow(self) -> pa.Table:
        """All rows as a pyarrow Table.

        >>> table.scan(limit=10).to_arrow()
        """
        try:
            return self._collected()
        except LakeCorrupt as error:
            self._background.run(self._core.replan(error))
        return self._collected()

    def _collected(self) -> pa.Table:
        collected = Collected(self._core)
        with self._chunks(ordered=collected.ordered) as chunks:
            while not collected.complete and (chunk := chunks.next()) is not None:
                collected.add(chunk)
        return collected.table()

    @contextmanager
    def _chunks(self, *, ordered: bool) -> Iterator[BlockingChunks]:
        background = self._background
        chunks = BlockingChunks.of(self._core, background.run, ordered=ordered)
        try:
            yield chunks
        finally:
            chunks.close()
            if (stream := chunks.stream) is not None:
                background.run_unless_ending(stream.close)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows batch by batch, in order; what comes next is fetched meanwhile.

        >>> for batch in table.scan().to_batches():
        ...     print(batch.num_rows)
        """
        begun = False
        try:
            for batch in self._batches():
                begun = True
                yield batch
            return
        except LakeCorrupt as error:
            if begun:
                raise
            self._background.run(self._core.replan(error))
        yield from self._batches()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        rest = Rest(self._core.streaming_limit)
        with self._chunks(ordered=True) as chunks:
            while not rest.empty and (chunk := chunks.next()) is not None:
                yield from rest.take(self._core.read(chunk))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a stream that other libraries read.

        >>> pyarrow.parquet.write_table(scan.to_reader().read_all(), "rows.parquet")
        """
        return pa.RecordBatchReader.from_batches(self.schema, self.to_batches())

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas DataFrame; options as of ``pyarrow.Table.to_pandas``.

        >>> table.scan().to_pandas()
        """
        return pandas_of(self.to_arrow(), **options)

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars DataFrame.

        >>> table.scan().to_polars()
        """
        return polars_of(self.to_arrow())

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """All rows as a DuckDB relation, for more SQL.

        >>> table.scan().to_duckdb().aggregate("max(price)")
        """
        return duckdb_of(self.to_arrow(), connection)

    def count(self) -> int:
        """How many rows there are. Without a filter no row is read; with one, only the cheapest column.

        >>> table.scan(where="price > 10").count()
        42
        """
        return self._background.run(self._core.count())
