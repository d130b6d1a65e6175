"""Stand-ins: tables of the right names and types, without the rows, on which DuckDB plans a query for us.

Its optimizer moves columns and filters down to each table; the plan it makes is read as JSON (``asking.py``). A
stand-in has one row of NULLs, and statistics are switched off: DuckDB must not conclude from them that a part of the
query is empty, or the plan would not be that of the real tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strom.errors import InvalidQuery
from strom.model.table import TablePath
from strom.sql.duck import give_back, literal, quoted, told

if TYPE_CHECKING:
    import duckdb

_PLAN = "SELECT json_serialize_plan(?, skip_null := true, skip_empty := true, optimize := true)"


class Standing:
    """The stand-ins of one query."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, schemas: Mapping[TablePath, pa.Schema], database: str
    ) -> None:
        self.connection = connection
        self._registered: list[str] = []
        self.connection.execute("SET disabled_optimizers = 'statistics_propagation'")
        # One transaction, in which the query runs too: now() is the same in its plan and in its rows.
        self.connection.execute("BEGIN TRANSACTION")
        self._types: dict[TablePath, dict[str, str]] = {}
        for path, schema in schemas.items():
            self._types[path] = _stand_in(self.connection, path, schema)
        use_database(self.connection, database)

    def types(self, path: TablePath) -> dict[str, str]:
        """How DuckDB calls the types of a table's columns."""
        return self._types[path]

    def check(self, select: str) -> None:
        """InvalidQuery says what does not fit the tables: a column, a type, a function."""
        with told():
            self.connection.execute(f"EXPLAIN {select}").fetchall()

    def plan(self, select: str) -> Any | None:
        """The optimized plan as JSON; None where DuckDB cannot write it down."""
        with told():
            (row,) = self.connection.execute(_PLAN, [select]).fetchall()
        try:
            found = json.loads(row[0])
        except ValueError:  # it writes infinities and NaN in a way of its own
            return None
        return None if found.get("error") else found.get("plans")

    def replace(self, path: TablePath, select: str) -> None:
        """Put the rows of a table in the place of its stand-in."""
        name = f"{quoted(path.database)}.{quoted(path.table)}"
        with told():
            self.connection.execute(f"DROP TABLE {name}")
            self.connection.execute(f"CREATE VIEW {name} AS {select}")

    def optimize(self) -> None:
        """From now on queries run on real rows: DuckDB may use all it knows."""
        self.connection.execute("RESET disabled_optimizers")

    def register(self, name: str, rows: object) -> None:
        """Rows under a name, for views to come."""
        self.connection.register(name, rows)
        self._registered.append(name)

    def close(self) -> None:
        """Let go of it."""
        give_back(self.connection, self._registered)


def use_database(connection: duckdb.DuckDBPyConnection, database: str) -> None:
    """Names without a database are looked for in this one."""
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(database)}")
    connection.execute(f"SET schema = {literal(quoted(database))}")


def _stand_in(connection: duckdb.DuckDBPyConnection, path: TablePath, schema: pa.Schema) -> dict[str, str]:
    empty = pa.Table.from_batches([], schema=nullable(schema))
    row = pa.Table.from_arrays([pa.nulls(1, field.type) for field in empty.schema], schema=empty.schema)
    lower = [name.lower() for name in schema.names]
    if len(set(lower)) < len(lower):
        raise InvalidQuery(f"{path} has columns whose names differ only in case: SQL cannot tell them apart")
    name = f"{quoted(path.database)}.{quoted(path.table)}"
    with told():
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(path.database)}")
        connection.register("__stand_in", row)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM __stand_in")
        connection.unregister("__stand_in")
        found = connection.execute(f"DESCRIBE {name}").fetchall()
    return {str(one[0]): str(one[1]) for one in found}


def nullable(schema: pa.Schema) -> pa.Schema:
    """The schema with NULL allowed everywhere, and without notes of other programs."""
    return pa.schema([pa.field(field.name, field.type) for field in schema])
