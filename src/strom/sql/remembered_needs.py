"""What a query needs of its tables, read from DuckDB's plan; remembered for deterministic queries.

It depends on the text, on the database of unqualified names, and on the tables' columns, so all of them are compared:
nothing is reused after ALTER TABLE, nor for a table of the same name in another cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from strom.model.schema import Schema
from strom.model.table import TablePath
from strom.sql.statement import KEPT_CHARACTERS_MAX, Statement
from strom.sql.table_needs import TableNeed, needs_of
from strom.sql.tables import SqlTable

KEPT_MAX = 256

Columns: TypeAlias = dict[TablePath, Schema | pa.Schema]

_kept: dict[tuple[str, str], tuple[Columns, dict[TablePath, TableNeed]]] = {}
"""By text and database: the columns of the tables, and the needs."""


def needs_of_query(
    statement: Statement,
    database: str,
    tables: Mapping[TablePath, SqlTable],
    mentions: Mapping[TablePath, int],
    plan: Callable[[str], Any | None],
) -> dict[TablePath, TableNeed]:
    """What is needed of each table whose rows are not here yet. ``plan`` rejects a query that does not fit them."""
    if not statement.deterministic or len(statement.text) > KEPT_CHARACTERS_MAX:
        return _needs(plan(statement.select), tables, mentions)
    columns: Columns = {
        path: table.arrow if table.info is None else table.schema for path, table in tables.items()
    }
    kept = _kept.get((statement.text, database))
    if kept is not None and kept[0] == columns:
        return kept[1]
    found = _needs(plan(statement.select), tables, mentions)
    if len(_kept) >= KEPT_MAX:
        _kept.clear()  # no lock, as a process may fork: two threads that both plan lose nothing
    _kept[statement.text, database] = columns, found
    return found


def _needs(
    plan: Any | None, tables: Mapping[TablePath, SqlTable], mentions: Mapping[TablePath, int]
) -> dict[TablePath, TableNeed]:
    schemas = {path: table.schema for path, table in tables.items() if table.rows is None}
    found = needs_of(plan, schemas, {path: mentions[path] for path in schemas})
    return {path: _with_own_columns(need, tables[path]) for path, need in found.items()}


def _with_own_columns(need: TableNeed, table: SqlTable) -> TableNeed:
    """Add the columns that a lake table has beyond its schema: those are always read."""
    extra = frozenset(table.arrow.names) - frozenset(table.schema.names)
    return TableNeed(need.columns | extra, need.where) if extra else need
