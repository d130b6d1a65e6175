"""DuckDB's names for the types of Arrow columns: looked up once per schema, because they never change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from strom.sql.duck import told

if TYPE_CHECKING:
    import duckdb

KEPT_MAX = 256
_NAME = "__types"

_kept: dict[pa.Schema, dict[str, str]] = {}


def types_of(connection: duckdb.DuckDBPyConnection, schema: pa.Schema) -> dict[str, str]:
    """The type names by column. Uses ``connection``, outside of a transaction, if the schema is new."""
    found = _kept.get(schema)
    if found is None:
        if len(_kept) >= KEPT_MAX:
            _kept.clear()  # no lock, as a process may fork: two threads that both look it up lose nothing
        found = _kept[schema] = _asked(connection, schema)
    return found


def _asked(connection: duckdb.DuckDBPyConnection, schema: pa.Schema) -> dict[str, str]:
    with told():
        connection.register(_NAME, pa.Table.from_batches([], schema=schema))
        try:
            kinds = connection.execute(f"DESCRIBE {_NAME}").fetchall()
        finally:
            connection.unregister(_NAME)
    return dict(zip(schema.names, (str(one[1]) for one in kinds), strict=True))
