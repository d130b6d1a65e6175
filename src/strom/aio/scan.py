"""The async face of a scan."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strom.client.plan.key_plan import KeyScanPlan
from strom.client.plan.log_plan import ScanPlan
from strom.client.read.row_scan import RowScan as Core
from strom.client.read.source import ReadStatistics
from strom.client.show.frames import pandas_of, polars_of

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl

    from strom.lake.read.union_plan import UnionPlan


class Scan:
    """The rows of a table at one moment: the moment when they are first asked for.

    >>> found = await table.scan(columns=["id"], where="id > 10").to_arrow()
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def __repr__(self) -> str:
        return f"{type(self._core).__name__}({', '.join(self.schema.names)})"

    @property
    def core(self) -> Core:
        """What the blocking face drives."""
        return self._core

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self._core.schema

    @property
    def statistics(self) -> ReadStatistics:
        """What was moved so far, and what the server spared us."""
        return self._core.statistics

    async def plan(self) -> ScanPlan | KeyScanPlan | UnionPlan:
        """The offsets this scan reads; of a primary-key table the instant of every bucket."""
        return await self._core.plan()

    async def to_arrow(self) -> pa.Table:
        """All rows as a pyarrow Table."""
        return await self._core.to_arrow()

    def to_batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The rows batch by batch, in order."""
        return self._core.batches()

    async def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas DataFrame; options as of ``pyarrow.Table.to_pandas``."""
        return pandas_of(await self.to_arrow(), **options)

    async def to_polars(self) -> pl.DataFrame:
        """All rows as a polars DataFrame."""
        return polars_of(await self.to_arrow())

    async def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """All rows as a DuckDB relation."""
        return duckdb_of(await self.to_arrow(), connection)

    async def count(self) -> int:
        """How many rows there are; without a filter none is read for it."""
        return await self._core.count()


def duckdb_of(table: pa.Table, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
    """An Arrow table as a DuckDB relation."""
    import duckdb

    return duckdb.from_arrow(table) if connection is None else connection.from_arrow(table)
