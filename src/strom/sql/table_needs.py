"""What a query needs of each table: the columns it uses, and a filter that all rows it uses pass.

Read from DuckDB's optimized plan over stand-ins. For a table that is named several times the needs are combined: all
columns, filters joined by OR. Anything not understood widens the need, never narrows it; DuckDB applies the whole query
to what it gets, so a filter here only has to keep every row that matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from strom.errors import StromError
from strom.model.filters.predicate import Or, Predicate
from strom.model.schema import Schema
from strom.model.table import TablePath
from strom.sql.plan_filters import predicate_of

EMPTY = frozenset({"LOGICAL_EMPTY_RESULT"})
VIRTUAL_COLUMNS_FROM = 1 << 62
"""Row ids and the like, which are not stored."""


@dataclass(frozen=True)
class TableNeed:
    """What is needed of one table. ``where`` None: any row may matter."""

    columns: frozenset[str]
    where: Predicate | None


def needs_of(
    plan: Any | None, schemas: Mapping[TablePath, Schema], mentions: Mapping[TablePath, int]
) -> dict[TablePath, TableNeed]:
    """The need by table. A plan that shows a table less often than the text names it proves nothing about it."""
    everything = {path: TableNeed(frozenset(schema.names), None) for path, schema in schemas.items()}
    if plan is None:
        return everything
    nodes = list(_nodes(plan))
    if any(node.get("type") in EMPTY for node in nodes):
        return everything  # DuckDB left something out that it may read when it runs
    scans: dict[TablePath, list[TableNeed]] = {}
    for node in nodes:
        path = _table_of(node)
        if path is not None and path in schemas:
            scans.setdefault(path, []).append(_need_of(node, schemas[path]))
    return {
        path: _together(scans[path]) if len(scans.get(path, ())) >= mentions[path] else everything[path]
        for path in schemas
    }


def _together(needs: list[TableNeed]) -> TableNeed:
    columns = frozenset[str]().union(*(need.columns for need in needs))
    filters = dict.fromkeys(need.where for need in needs)
    told = [where for where in filters if where is not None]
    return TableNeed(columns, Or.of(*told) if len(told) == len(filters) else None)


def _nodes(plan: Any) -> Iterator[dict[str, Any]]:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if str(node.get("type", "")).startswith("LOGICAL_"):
                yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _table_of(node: dict[str, Any]) -> TablePath | None:
    if node.get("type") != "LOGICAL_GET":
        return None
    data = node.get("function_data", {})
    if "schema" not in data or "table" not in data:
        return None
    return TablePath(str(data["schema"]), str(data["table"]))


def _need_of(node: dict[str, Any], schema: Schema) -> TableNeed:
    names = []
    for one in node.get("column_indexes", ()):
        index = one.get("index", VIRTUAL_COLUMNS_FROM)
        # A field inside a row: the column is needed, but a filter on the field is not one on the column.
        whole = not one.get("child_indexes")
        names.append((schema.names[index], whole) if index < len(schema.names) else (None, False))
    columns = frozenset(name for name, _ in names if name is not None)
    readable = [name if whole else None for name, whole in names]
    where = predicate_of(node.get("table_filters", {}), readable, schema)
    if where is not None:
        try:
            where = where.check(schema)
        except StromError:
            where = None  # DuckDB applies what a predicate cannot express
    return TableNeed(columns, where)
