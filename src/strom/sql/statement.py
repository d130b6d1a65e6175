"""One SQL statement that reads: checks it, and finds the tables it names without binding it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from strom.errors import InvalidQuery, LimitExceeded, ReadOnlyQuery
from strom.sql.deterministic import is_deterministic
from strom.sql.duck import told

if TYPE_CHECKING:
    import duckdb

CHARACTERS_MAX = 1_000_000
DEPTH_MAX = 500
"""Of the syntax tree; real queries stay far below it."""
KEPT_MAX = 256
KEPT_CHARACTERS_MAX = 10_000
"""Bounds of the memory: statements, and characters of each."""

_EXPLAIN = re.compile(r"\s*explain\s+(analyze\s+)?", re.IGNORECASE)
_OWN_SCHEMAS = frozenset({"information_schema", "pg_catalog"})
_OWN_FUNCTIONS = ("duckdb_", "pragma_")
"""Prefixes of DuckDB's functions that describe its catalog."""
_DATABASES = """SELECT schema_name AS database_name FROM information_schema.schemata
WHERE catalog_name = current_database() AND schema_name NOT IN ('information_schema', 'pg_catalog', 'main') ORDER BY ALL
"""
"""DuckDB's schemas are Strom's databases."""

_kept: dict[str, Statement] = {}


class TableName(NamedTuple):
    """A table as the query writes it."""

    database: str | None
    table: str

    def __str__(self) -> str:
        return self.table if self.database is None else f"{self.database}.{self.table}"


@dataclass(frozen=True)
class Statement:
    """A SELECT (or EXPLAIN, DESCRIBE, SUMMARIZE of one)."""

    text: str
    select: str
    """The text without EXPLAIN."""
    tables: tuple[TableName, ...]
    """Every mention of a table, in the order of the text; a table named twice is here twice."""
    deterministic: bool
    """Whether it means the same every time: nothing in it depends on time, chance or settings."""

    reads: bool
    """Whether it reads rows of its tables; EXPLAIN and DESCRIBE do not."""
    describes: bool
    """Whether it is a DESCRIBE, which needs the columns of its tables."""
    lists: bool
    """Whether it lists tables: SHOW TABLES, information_schema."""


def parse(connection: duckdb.DuckDBPyConnection, text: str) -> Statement:
    """Parse a statement; InvalidQuery and ReadOnlyQuery say what is wrong. Remembered by its text."""
    found = _kept.get(text)
    if found is None:
        found = _read(connection, text)
        if len(text) <= KEPT_CHARACTERS_MAX:
            if len(_kept) >= KEPT_MAX:
                _kept.clear()  # no lock, as a process may fork: two threads that both parse lose nothing
            _kept[text] = found
    return found


def _read(connection: duckdb.DuckDBPyConnection, text: str) -> Statement:
    if len(text) > CHARACTERS_MAX:
        raise LimitExceeded(f"a query has at most {CHARACTERS_MAX:,} characters, not {len(text):,}")
    with told():
        statements = connection.extract_statements(text)
    if len(statements) != 1:
        raise InvalidQuery(f"give one statement at a time, not {len(statements)}", found=len(statements))
    kind = statements[0].type.name
    if kind not in ("SELECT", "EXPLAIN"):
        raise ReadOnlyQuery(
            f"SQL reads tables and changes nothing: {kind.lower()} is not allowed. Write with append, upsert and "
            "delete, change tables with `strom table`",
            statement=kind,
        )
    select = text if kind == "SELECT" else select_of(text)[1]
    tree = tree_of(connection, select)
    shown = tree[0].get("node", {}).get("from_table", {})
    if kind == "SELECT" and shown.get("table_name") == '"databases"':
        return _read(connection, _DATABASES)
    reads = kind == "SELECT" and shown.get("type") != "SHOW_REF"
    describes = kind == "SELECT" and not reads and shown.get("show_type") in ("DESCRIBE", "SHOW")
    lists = any(map(_asks_what_there_is, nodes_of(tree)))
    return Statement(text, select, tuple(_mentions(tree)), is_deterministic(tree), reads, describes, lists)


def _asks_what_there_is(node: dict[str, Any]) -> bool:
    match node.get("type"):
        case "SHOW_REF":
            return node.get("show_type") in ("SHOW_SPECIAL", "SHOW_FROM")
        case "BASE_TABLE":
            return str(node.get("schema_name", "")).lower() in _OWN_SCHEMAS
        case "TABLE_FUNCTION":
            return str(node.get("function", {}).get("function_name", "")).lower().startswith(_OWN_FUNCTIONS)
    return False


def select_of(text: str) -> tuple[str, str]:
    """Split a query into its EXPLAIN, if it has one, and the rest."""
    match = _EXPLAIN.match(text)
    if match is None:
        if text.lstrip()[:7].lower() == "explain":
            raise InvalidQuery("write EXPLAIN or EXPLAIN ANALYZE before the query, without options")
        return "", text
    return text[: match.end()], text[match.end() :]


def tree_of(connection: duckdb.DuckDBPyConnection, select: str) -> Any:
    """DuckDB's syntax tree of a SELECT."""
    call = "SELECT json_serialize_sql(?, skip_null := true, skip_empty := true)"
    with told():
        (row,) = connection.execute(call, [select]).fetchall()
    found = json.loads(row[0])
    if found.get("error"):
        raise InvalidQuery(str(found.get("error_message", "the query cannot be read")))
    return found["statements"]


def _mentions(tree: Any) -> Iterator[TableName]:
    """The tables of a syntax tree, without names that an enclosing WITH defines."""
    waiting: list[tuple[Any, frozenset[str], int]] = [(tree, frozenset(), 0)]
    while waiting:
        node, defined, depth = waiting.pop()
        if depth > DEPTH_MAX:
            raise LimitExceeded(f"a query may be nested {DEPTH_MAX} deep")
        if isinstance(node, list):
            waiting.extend((one, defined, depth + 1) for one in reversed(node))
        elif isinstance(node, dict):
            defined |= {str(one["key"]).lower() for one in node.get("cte_map", {}).get("map", ())}
            if node.get("type") == "BASE_TABLE" or node.get("show_type") == "SHOW":
                name = named(node)
                own = (name.database or "").lower() in _OWN_SCHEMAS
                if not own and (name.database is not None or name.table.lower() not in defined):
                    yield name
                continue
            waiting.extend((one, defined, depth + 1) for one in reversed(node.values()))


def nodes_of(tree: Any) -> Iterator[dict[str, Any]]:
    """All nodes of a syntax tree, in the order of the text."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(reversed(node))
        elif isinstance(node, dict):
            yield node
            waiting.extend(reversed(node.values()))


def named(node: dict[str, Any]) -> TableName:
    """The name at a mention of a table."""
    path = [str(part) for part in node.get("qualified_name", {}).get("path", ())]
    if not 1 <= len(path) <= 2:
        raise InvalidQuery(f"a table is named `table` or `database.table`, not {'.'.join(path)}")
    return TableName(path[0] if len(path) == 2 else None, path[-1])
