"""The async API of SQL, and what both APIs need to run a query."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from strom.aio.session import Session
from strom.aio.system_tables import find_table
from strom.client.read.frames import pandas_of, polars_of

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from strom.client.read.direct_scan import Loop
    from strom.model.filters.predicate import Predicate
    from strom.sql.instants import At
    from strom.sql.parameters import Parameters
    from strom.sql.query import House, Query, QueryStatistics
    from strom.sql.tables import SqlTable

Value = TypeVar("Value")


def house_of(session: Session, run: Loop) -> House:
    """What a query needs from a connection; ``run`` runs work on its loop and waits, from any other thread."""
    from strom.sql.query import House
    from strom.sql.tables import TableFinder

    admin = session.admin
    return House(
        cluster=session.cluster,
        catalog=TableFinder(
            table=lambda path: find_table(session, path), tables=admin.tables, databases=admin.databases
        ),
        warehouses=session.warehouses,
        lookups_of=session.lookups_of,
        flush=session.flush_table,
        rows_then=lambda table, columns, where: _rows_then(session, table, columns, where),
        run=run,
    )


async def _rows_then(
    session: Session, table: SqlTable, columns: Sequence[str], where: Predicate | None
) -> pa.Table:
    from strom.aio.table import Table

    assert table.info is not None
    few = columns or table.arrow.names[:1]  # count(*) uses none
    return await Table(session, table.info).scan(few, where, at=table.at).to_arrow()


async def make_query(
    session: Session, text: str, database: str, parameters: Parameters | None, at: At | None
) -> Result:
    """Check a query against its tables."""
    from strom.sql.query import Query

    house = house_of(session, loop_of_now())
    return Result(await asyncio.to_thread(Query, text, house, database, parameters, at))


def loop_of_now() -> Loop:
    """A function that runs work on this loop for a blocking thread."""
    loop = asyncio.get_running_loop()

    def run(work: Coroutine[Any, Any, Value]) -> Value:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    return run


class Result:
    """The result of ``db.sql``: run when it is read, the same rows each time.

    >>> found = await (await db.sql("SELECT count(*) FROM events")).to_arrow()
    """

    def __init__(self, query: Query) -> None:
        self._query = query

    def __repr__(self) -> str:
        return f"Result({self._query.statement.text!r})"

    @property
    def statistics(self) -> QueryStatistics:
        """What was read for it so far."""
        return self._query.statistics

    async def to_arrow(self) -> pa.Table:
        """All rows as a pyarrow Table."""
        return await asyncio.to_thread(self._all)

    def _all(self) -> pa.Table:
        reader = self._query.reader()
        return pa.Table.from_batches(list(self._query.rest_of(reader)), schema=reader.schema)

    async def to_batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The rows batch by batch."""
        rows = self._query.batches()
        while (batch := await asyncio.to_thread(next, rows, None)) is not None:
            yield batch

    async def to_pylist(self) -> list[dict[str, Any]]:
        """All rows as dicts."""
        rows: list[dict[str, Any]] = (await self.to_arrow()).to_pylist()
        return rows

    async def to_pandas(self, **options: Any) -> pd.DataFrame:
        """All rows as a pandas DataFrame; options as of ``pyarrow.Table.to_pandas``."""
        return pandas_of(await self.to_arrow(), **options)

    async def to_polars(self) -> pl.DataFrame:
        """All rows as a polars DataFrame."""
        return polars_of(await self.to_arrow())

    async def close(self) -> None:
        """Free what it holds. Happens anyway when it is garbage-collected."""
        await asyncio.to_thread(self._query.close)
