"""The tables a query names, looked up in the cluster; system tables come with their rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from strom.client.cluster.metadata import TableInfo
from strom.errors import DatabaseNotFound, InvalidQuery, TableNotFound
from strom.lake.read.union_planner import Tier
from strom.model.names import nearest
from strom.model.schema import Schema
from strom.model.table import TablePath
from strom.sql.instants import At, Then
from strom.sql.statement import TableName

AT_ONCE = 16
"""Concurrent lookups when all tables are listed."""


@dataclass(frozen=True)
class SqlTable:
    """What a name stands for: a table (of one tier or both), or rows that are already here."""

    path: TablePath
    arrow: pa.Schema
    info: TableInfo | None = None
    tier: Tier = "both"
    rows: pa.Table | None = None
    at: At | None = None
    """The instant it is read at; None: now."""

    @property
    def schema(self) -> Schema:
        """The table's own columns."""
        assert self.info is not None
        return self.info.schema


@dataclass(frozen=True)
class TableFinder:
    """How tables are found."""

    table: Callable[[TablePath], Awaitable[SqlTable]]
    """TableNotFound, DatabaseNotFound when there is none."""
    tables: Callable[[str], Awaitable[list[str]]]
    databases: Callable[[], Awaitable[list[str]]]

    async def find(self, names: Sequence[TableName], database: str) -> dict[TableName, SqlTable]:
        """What the names stand for; an unknown one is an error that names the nearest."""
        distinct = list(dict.fromkeys(names))
        found = await asyncio.gather(*(self._one(name, database) for name in distinct))
        return dict(zip(distinct, found, strict=True))

    async def find_then(
        self, names: Sequence[TableName], then: Mapping[TableName, Then], database: str, at: At | None
    ) -> dict[TableName, SqlTable]:
        """The same where some names stand for a table at their own instant; ``at``: the instant of the others."""
        found = await self.find([then[name].table if name in then else name for name in names], database)
        return {
            name: _at_instant(found[then[name].table], name.table, then[name].at)
            if name in then
            else _at_instant(found[name], None, at)
            for name in names
        }

    async def everything(self) -> dict[str, list[SqlTable]]:
        """All tables, by database, without those dropped meanwhile."""
        databases = await self.databases()
        names = await asyncio.gather(*map(self.tables, databases))
        paths = [
            TablePath(database, name)
            for database, tables in zip(databases, names, strict=True)
            for name in tables
        ]
        at_once = asyncio.Semaphore(AT_ONCE)

        async def one(path: TablePath) -> SqlTable | None:
            async with at_once:
                try:
                    return await self.table(path)
                except (TableNotFound, DatabaseNotFound):
                    return None

        found = [table for table in await asyncio.gather(*map(one, paths)) if table is not None]
        return {name: [table for table in found if table.path.database == name] for name in databases}

    async def _one(self, name: TableName, database: str) -> SqlTable:
        path = TablePath(name.database or database, name.table)
        try:
            return await self.table(path)
        except (TableNotFound, DatabaseNotFound) as error:
            if "kinds" in error.facts:
                raise
            return await self.table(await self._meant(path))

    async def _meant(self, path: TablePath) -> TablePath:
        """The table of that name in another case, as SQL allows; else an error with the nearest name."""
        databases = await self.databases()
        database = _same(path.database, databases)
        if database is None:
            hint = nearest(path.database, databases)
            raise DatabaseNotFound(f"there is no database {path.database!r}{hint}", database=path.database)
        base, mark, system = path.table.partition("$")
        tables = await self.tables(database)
        table = _same(base, tables)
        if table is None or (table == base and database == path.database):
            hint = nearest(base, tables)
            raise TableNotFound(f"there is no table {path}{hint}", table=str(path))
        return TablePath(database, table + mark + system.lower())


def _same(name: str, names: Sequence[str]) -> str | None:
    found = [one for one in names if one.lower() == name.lower()]
    return name if name in found else found[0] if len(found) == 1 else None


def _at_instant(table: SqlTable, name: str | None, at: At | None) -> SqlTable:
    if at is None:
        return table
    if table.info is None or table.tier != "both":
        raise InvalidQuery(
            f"{table.path} has no history: only tables themselves can be read as of an earlier time"
        )
    path = table.path if name is None else TablePath(table.path.database, name)
    return replace(table, path=path, at=at)


def mentions(names: Sequence[TableName], found: Mapping[TableName, SqlTable]) -> dict[TablePath, int]:
    """How often each table is named."""
    counts: dict[TablePath, int] = {}
    for name in names:
        path = found[name].path
        counts[path] = counts.get(path, 0) + 1
    return counts
