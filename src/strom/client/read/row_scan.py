"""What all scans share: planned once, streamed as chunks, collected in the order of the plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import ReadOptions
from strom.client.plan.filters import Filter
from strom.client.read.bucket_read import Chunks
from strom.client.read.frames import duckdb_of, pandas_of, polars_of
from strom.client.read.row_reader import RowReader
from strom.client.read.scan_chunk import AnyChunk
from strom.client.read.source import ReadStatistics, Source
from strom.errors import InvalidRequest, LakeCorrupt
from strom.model.bucket import BucketId

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

    from strom.client.plan.key_plan import KeyScanPlan
    from strom.client.plan.log_plan import ScanPlan

TINY_ROWS = 1024
MANY_BATCHES = 64
DEFAULT_OPTIONS = ReadOptions()


class RowScan(ABC):
    """The rows of a table at one instant, fixed when they are first read. This is ``strom.aio.Scan``.

    It is planned once and can be read any number of times. ``stream`` and ``read`` are the halves of reading that the
    blocking API drives: only the first needs the event loop.

    >>> found = await table.scan(columns=["id"], where="id > 10").to_arrow()
    """

    limit: int | None
    statistics: ReadStatistics
    """What was moved so far, and what the server left out."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.schema.names)})"

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the result."""

    @property
    @abstractmethod
    def streaming_limit(self) -> int | None:
        """The number of rows after which reading stops; None when the plan holds exactly the rows."""

    @abstractmethod
    async def plan(self) -> ScanPlan | KeyScanPlan:
        """What this scan reads, fixed on the first call."""

    @abstractmethod
    async def stream(self, *, ordered: bool) -> Chunks:
        """The chunks of this scan, to be passed to ``read`` one by one."""

    def stream_now(self, *, ordered: bool) -> Chunks | None:
        """``stream`` for a blocking thread, without the loop; None where only the loop can plan."""
        return None

    @abstractmethod
    def read(self, chunk: AnyChunk) -> list[pa.RecordBatch]:
        """The rows of a chunk; any thread."""

    @abstractmethod
    async def count(self) -> int:
        """The number of rows."""

    async def replan(self, error: LakeCorrupt) -> None:
        """Plan again after an error, before any row was delivered, if that can help; otherwise raise the error."""
        raise error

    async def to_batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The rows, batch by batch, in order."""
        rest = Rest(self.streaming_limit)
        stream = await self.stream(ordered=True)
        try:
            while not rest.empty and (chunk := await stream.next()) is not None:
                for batch in rest.take(self.read(chunk)):
                    yield batch
        finally:
            await stream.close()

    async def to_arrow(self) -> pa.Table:
        """All rows as a pyarrow Table."""
        collected = Collected(self)
        stream = await self.stream(ordered=collected.ordered)
        try:
            while not collected.complete and (chunk := await stream.next()) is not None:
                collected.add(chunk)
        finally:
            await stream.close()
        return collected.table()

    async def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas DataFrame; options as of ``pyarrow.Table.to_pandas``."""
        return pandas_of(await self.to_arrow(), **options)

    async def to_polars(self) -> pl.DataFrame:
        """All rows as a polars DataFrame."""
        return polars_of(await self.to_arrow())

    async def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """All rows as a DuckDB relation."""
        return duckdb_of(await self.to_arrow(), connection)


class Rest:
    """The rows left of a limit."""

    def __init__(self, limit: int | None) -> None:
        self._left = limit

    @property
    def empty(self) -> bool:
        """Whether the limit is reached."""
        return self._left == 0

    def take(self, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """The batches, truncated at the limit."""
        if self._left is None:
            return list(batches)
        taken = []
        for batch in batches:
            if self._left == 0:
                break
            part = batch.slice(0, self._left)
            self._left -= part.num_rows
            taken.append(part)
        return taken


class Collected:
    """All rows of a scan: fetched in any order, assembled in the order of the plan.

    With a limit the order decides which rows are included, so they are fetched in order.
    """

    def __init__(self, scan: RowScan) -> None:
        self._scan = scan
        self._rest = Rest(scan.streaming_limit)
        self.ordered = scan.streaming_limit is not None
        self._by_range: dict[int, list[pa.RecordBatch]] = {}

    @property
    def complete(self) -> bool:
        """Whether the limit is reached."""
        return self._rest.empty

    def add(self, chunk: AnyChunk) -> None:
        """Add one chunk; the chunks of a bucket come in order."""
        batches = self._rest.take(self._scan.read(chunk))
        self._by_range.setdefault(chunk.range_number, []).extend(batches)

    def table(self) -> pa.Table:
        """The rows in order. Very many tiny batches are combined: later steps would pay for each of them."""
        batches = [batch for index in sorted(self._by_range) for batch in self._by_range[index]]
        table = pa.Table.from_batches(batches, schema=self._scan.schema)
        if len(batches) > MANY_BATCHES and table.num_rows < TINY_ROWS * len(batches):
            table = table.combine_chunks()
        return table


class ServerScan(RowScan):
    """A scan of rows that servers hold.

    ``before`` runs before planning: it flushes what this client wrote; ``unflushed`` says whether there is anything.
    """

    def __init__(
        self,
        cluster: Cluster,
        table: TableInfo,
        *,
        columns: Sequence[str] | None,
        where: Filter | None,
        limit: int | None,
        options: ReadOptions | None,
        before: Callable[[], Awaitable[None]] | None,
        unflushed: Callable[[], bool] | None = None,
    ) -> None:
        if limit is not None and limit < 0:
            raise InvalidRequest(f"limit is 0 or more, not {limit}", limit=limit)
        self._where = where
        self.limit = limit
        self._before = before
        self._unflushed = unflushed
        self._source = Source(
            cluster,
            table,
            RowReader(table.schema, columns),
            None if where is None else where.wire,
            options or DEFAULT_OPTIONS,
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._source.reader.arrow

    @property
    def statistics(self) -> ReadStatistics:
        """What was moved so far; set it to add this scan to another's figures."""
        return self._source.statistics

    @statistics.setter
    def statistics(self, statistics: ReadStatistics) -> None:
        self._source.statistics = statistics

    def _only(self, column: str) -> Source:
        """The same source with one column: enough to count rows."""
        return replace(self._source, reader=RowReader(self._source.table.schema, [column]))

    async def _find_leaders(self, buckets: Iterable[BucketId]) -> None:
        """For a plan made elsewhere: its partitions may be unknown here."""
        ids = {bucket.partition_id for bucket in buckets if bucket.partition_id is not None}
        await self._source.cluster.find_leaders(self._source.table, sorted(ids))
