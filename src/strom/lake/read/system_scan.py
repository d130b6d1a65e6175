"""A scan of rows that describe a table (``t$snapshots``, ``t$offsets``); they are fetched when it is first read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pyarrow as pa

from strom.client.plan.filters import Filter, WhereLike, filter_of
from strom.client.plan.log_plan import ScanPlan
from strom.client.read.key_scan import LookedUp
from strom.client.read.row_scan import RowScan
from strom.client.read.scan_chunk import AnyChunk, LookedUpChunk
from strom.client.read.source import ReadStatistics
from strom.errors import InvalidProjection, InvalidRequest
from strom.model.names import nearest
from strom.model.schema import Schema


class SystemScan(RowScan):
    """A few rows; filter and limit are applied here."""

    def __init__(
        self,
        arrow: pa.Schema,
        rows: Callable[[], Awaitable[pa.Table]],
        *,
        columns: Sequence[str] | None = None,
        where: WhereLike = None,
        limit: int | None = None,
    ) -> None:
        if limit is not None and limit < 0:
            raise InvalidRequest(f"limit is 0 or more, not {limit}", limit=limit)
        for name in columns or ():
            if name not in arrow.names:
                hint = nearest(name, arrow.names)
                raise InvalidProjection(f"there is no column {name!r}{hint}", column=name)
        self._names = list(arrow.names if columns is None else columns)
        self._schema = pa.schema([arrow.field(name) for name in self._names])
        self._where: Filter | None = filter_of(where, Schema.from_arrow(arrow))
        self._rows = rows
        self._found: pa.RecordBatch | None = None
        self.limit = limit
        self.statistics = ReadStatistics()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._schema

    @property
    def streaming_limit(self) -> int | None:
        """The row limit."""
        return self.limit

    async def plan(self) -> ScanPlan:
        """Nothing of the table itself is read."""
        return ScanPlan(-1, ())

    async def stream(self, *, ordered: bool) -> LookedUp:
        """The rows at once."""
        if self._found is None:
            found = (await self._rows()).combine_chunks()
            batch = pa.RecordBatch.from_arrays(
                [column.combine_chunks() for column in found.columns], schema=found.schema
            )
            if self._where is not None:
                batch = batch.filter(self._where.predicate.mask(batch))
            self._found = batch.select(self._names)
        return LookedUp(self._found)

    def read(self, chunk: AnyChunk) -> list[pa.RecordBatch]:
        """The rows of a chunk."""
        assert isinstance(chunk, LookedUpChunk)
        return [chunk.rows]

    async def count(self) -> int:
        """How many rows there are."""
        rows = (await self.to_arrow()).num_rows
        return int(rows)
