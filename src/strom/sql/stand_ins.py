"""Stand-ins: tables of the right names and types but without the rows, on which DuckDB plans a query.

Its optimizer pushes columns and filters down to each table; the plan is read as JSON (``table_needs.py``). A stand-in
has one row of NULLs, and statistics are switched off: otherwise DuckDB could conclude that a part of the query is
empty, and plan something else than for the real tables.

Everything happens in one transaction that is never committed: the next query finds nothing of this one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from strom.errors import InvalidQuery
from strom.model.table import TablePath
from strom.sql.duck import give_back, literal, quoted, told
from strom.sql.duck_types import types_of

if TYPE_CHECKING:
    import duckdb

_PLAN = "SELECT json_serialize_plan(?, skip_null := true, skip_empty := true, optimize := true)"


class StandIns:
    """The tables of one query in DuckDB: nothing at first, then stand-ins if they are needed, then the rows."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        schemas: Mapping[TablePath, pa.Schema],
        database: str,
        others: Iterable[str] = (),
    ) -> None:
        """``others``: databases to create besides those of the tables."""
        self.connection = connection
        self._registered: list[str] = []
        self._types = {path: types_of(connection, nullable(schema)) for path, schema in schemas.items()}
        self._stands = False
        # One transaction, in which the query runs too: now() is the same in its plan and in its rows.
        databases = dict.fromkeys([database, *others, *(path.database for path in schemas)])
        made = [f"CREATE SCHEMA IF NOT EXISTS {quoted(name)}" for name in databases]
        used = f"SET schema = {literal(quoted(database))}"
        self.connection.execute("; ".join(["BEGIN TRANSACTION", *made, used]))

    def types(self, path: TablePath) -> dict[str, str]:
        """DuckDB's names for the types of a table's columns."""
        return self._types[path]

    def plan(self, select: str) -> Any | None:
        """The optimized plan as JSON; None where DuckDB cannot serialize it.

        InvalidQuery says what does not fit the tables: a column, a type, a function.
        """
        self._stand()
        with told():
            (row,) = self.connection.execute(_PLAN, [select]).fetchall()
        try:
            found = json.loads(row[0])
        except ValueError:  # its infinities and NaN are not JSON
            return None
        if not found.get("error"):
            return found.get("plans")
        # Preparing gives a better message than the failed plan, or finds nothing wrong. Not by EXPLAIN, which would
        # appear in the message in front of the query.
        with told():
            self.connection.sql(select)
        return None

    def _stand(self) -> None:
        made = ["SET disabled_optimizers = 'statistics_propagation'"]
        for path, types in self._types.items():
            lower = [name.lower() for name in types]
            if len(set(lower)) < len(lower):
                raise InvalidQuery(
                    f"{path} has columns whose names differ only in case: SQL cannot tell them apart"
                )
            nulls = ", ".join(f"CAST(NULL AS {kind}) AS {quoted(name)}" for name, kind in types.items())
            made.append(f"CREATE TABLE {_name(path)} AS SELECT {nulls}")
        with told():
            self.connection.execute("; ".join(made))
        self._stands = True

    def replace(self, views: Mapping[TablePath, str]) -> None:
        """Replace every stand-in by the table's rows: from now on queries run on real rows."""
        made = []
        for path, select in views.items():
            if self._stands:
                made.append(f"DROP TABLE {_name(path)}")
            made.append(f"CREATE VIEW {_name(path)} AS {select}")
        if self._stands:
            made.append("RESET disabled_optimizers")  # real rows: DuckDB may use all its optimizers
        with told():
            self.connection.execute("; ".join(made))
        self._stands = False

    def shape(self, tables: Mapping[TablePath, str]) -> None:
        """Replace stand-ins by empty tables of these columns, for queries about the catalog."""
        made = [f"DROP TABLE IF EXISTS {_name(path)}" for path in tables if self._stands]
        made += [f"CREATE TABLE {_name(path)} ({columns})" for path, columns in tables.items()]
        with told():
            self.connection.execute("; ".join(made))

    def register(self, name: str, rows: object) -> None:
        """Register rows under a name, for the views of ``replace``."""
        self.connection.register(name, rows)
        self._registered.append(name)

    def close(self) -> None:
        """Give the connection back."""
        give_back(self.connection, self._registered)


def _name(path: TablePath) -> str:
    return f"{quoted(path.database)}.{quoted(path.table)}"


def nullable(schema: pa.Schema) -> pa.Schema:
    """The schema with NULL allowed everywhere, and without metadata of other programs."""
    return pa.schema([pa.field(field.name, field.type) for field in schema])
