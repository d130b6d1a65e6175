"""Tables without rows, as DuckDB shows them: columns, which of them may be NULL, and the key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strom.sql.duck import quoted
from strom.sql.duck_types import types_of
from strom.sql.stand_ins import nullable
from strom.sql.tables import SqlTable

if TYPE_CHECKING:
    import duckdb


def shape_of(connection: duckdb.DuckDBPyConnection, table: SqlTable) -> str:
    """The column list of its CREATE TABLE; ``connection`` must not be in a transaction yet."""
    types = types_of(connection, nullable(table.arrow))
    lower = {name.lower() for name in types}
    if len(lower) < len(types):  # DuckDB cannot have such a table: show its name only
        return quoted(next(iter(types))) + " VARCHAR"
    parts = [
        f"{quoted(name)} {kind}{'' if table.arrow.field(name).nullable else ' NOT NULL'}"
        for name, kind in types.items()
    ]
    key = () if table.info is None else table.info.schema.primary_key
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
    return ", ".join(parts)
