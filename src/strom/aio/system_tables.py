"""System tables: ``t$lake`` reads the lake alone, ``t$snapshots`` and ``t$offsets`` show its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strom.aio.session import Session
from strom.errors import TableNotFound
from strom.model.names import nearest
from strom.model.table import TablePath

if TYPE_CHECKING:
    from strom.sql.tables import SqlTable

LAKE = "lake"
SNAPSHOTS = "snapshots"
OFFSETS = "offsets"
KINDS = (LAKE, SNAPSHOTS, OFFSETS)


def split(path: TablePath) -> tuple[TablePath, str | None]:
    """The table, and which of its system tables is meant; None: itself. TableNotFound for an unknown kind."""
    base, mark, kind = path.table.partition("$")
    if not mark:
        return path, None
    if kind not in KINDS:
        hint = nearest(kind, KINDS)
        raise TableNotFound(
            f"there is no table {path}{hint}; the system tables are {', '.join(f'${one}' for one in KINDS)}",
            table=str(path),
            kinds=KINDS,
        )
    return TablePath(path.database, base), kind


async def find_table(session: Session, path: TablePath) -> SqlTable:
    """A table for SQL, or a system table."""
    from strom.lake.read.system_rows import lake_schema_of
    from strom.sql.tables import SqlTable

    base, kind = split(path)
    info = await session.admin.table(base)
    if kind is None:
        return SqlTable(path, info.schema.to_arrow(), info)
    if kind == LAKE:
        return SqlTable(path, lake_schema_of(info.schema), info, tier="lake")
    rows = await system_rows(session, path)
    return SqlTable(path, rows.schema, rows=rows)


async def system_rows(session: Session, path: TablePath) -> pa.Table:
    """The rows of ``t$snapshots`` or ``t$offsets`` right now."""
    from strom.lake.read.system_rows import offset_rows, snapshot_rows

    base, kind = split(path)
    info = await session.admin.table(base)
    if kind == OFFSETS:
        return await offset_rows(session.cluster, info)
    assert kind == SNAPSHOTS
    return await snapshot_rows(session.cluster, session.warehouses, info)
