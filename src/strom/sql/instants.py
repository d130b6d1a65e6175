"""Tables as they were: ``FROM orders AT (TIMESTAMP => '2026-11-15 08:00')``, ``AT (VERSION => 5220484060048086093)``.

DuckDB parses the clause, but its tables have no history. So each such mention becomes a table of a new name
(``orders@1``) before the query is planned, and Strom fills that table with the rows of that instant.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strom.errors import InvalidQuery
from strom.sql.duck import quoted, told
from strom.sql.statement import TableName, named, nodes_of, select_of, tree_of
from strom.sql.tokens import Token, tokens

if TYPE_CHECKING:
    import duckdb

At = datetime.datetime | int
"""A time, or the id of a lake snapshot."""

_CLAUSE = re.compile(r"\bAT\s*\(\s*(TIMESTAMP|VERSION)\b", re.IGNORECASE)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class Then:
    """A table at an instant."""

    table: TableName
    at: At


def without_instants(connection: duckdb.DuckDBPyConnection, text: str) -> tuple[str, dict[TableName, Then]]:
    """The query without AT, and the table and instant behind each new name."""
    if _CLAUSE.search(text) is None:
        return text, {}
    explain, select = select_of(text)
    select = _aliases_first(connection, select)
    found: dict[TableName, Then] = {}
    encoded = select.encode()
    mentions = [node for node in nodes_of(tree_of(connection, select)) if "at_clause" in node]
    for number, node in sorted(enumerate(mentions, 1), key=lambda one: -one[1]["query_location"]):
        start = node["query_location"]
        end = start + node["query_location_length"]
        name = named(node)
        stand_in = TableName(name.database, f"{name.table}@{number}")
        piece, expression = _taken_apart(encoded[start:end].decode(), stand_in, node)
        found[stand_in] = Then(name, _instant(connection, node["at_clause"]["unit"], expression))
        encoded = encoded[:start] + piece.encode() + encoded[end:]
    return explain + encoded.decode(), found


def _aliases_first(connection: duckdb.DuckDBPyConnection, select: str) -> str:
    """``t AT (…) x`` as ``t x AT (…)``: people write both, DuckDB parses only the latter."""
    parts = list(tokens(select))
    solid = [index for index, one in enumerate(parts) if one.kind != "space"]
    for place in range(len(solid) - 3, -1, -1):
        start = solid[place]
        if not (
            parts[start].is_word("AT")
            and parts[solid[place + 1]].text == "("
            and parts[solid[place + 2]].is_word("TIMESTAMP", "VERSION")
        ):
            continue
        behind = [parts[index] for index in solid if index > _closing(parts, start)][:2]
        length = 2 if behind and behind[0].is_word("AS") else 1
        alias = behind[length - 1 : length]
        if alias and (
            alias[0].kind == "name" or (alias[0].kind == "word" and not _reserved(connection, alias[0]))
        ):
            at, end = parts[start].start, alias[0].end
            clause = select[at : behind[0].start].rstrip()
            select = f"{select[:at]}{alias[0].text} {clause}{select[end:]}"
    return select


def _closing(parts: list[Token], opening: int) -> int:
    """The position of the parenthesis that closes AT."""
    depth = 0
    for index in range(opening, len(parts)):
        depth += {"(": 1, ")": -1}.get(parts[index].text, 0)
        if parts[index].text == ")" and not depth:
            return index
    return len(parts)


def _reserved(connection: duckdb.DuckDBPyConnection, word: Token) -> bool:
    """Whether a word is a keyword for DuckDB, so not an alias."""
    asked = "SELECT count(*) FROM duckdb_keywords() WHERE keyword_name = ? AND keyword_category IN "
    with told():
        found = connection.execute(asked + "('reserved', 'type_function')", [word.text.lower()]).fetchone()
    return found is not None and bool(found[0])


def _taken_apart(piece: str, stand_in: TableName, node: dict[str, Any]) -> tuple[str, str]:
    """``t x AT (TIMESTAMP => y)`` as ``"t@1" x`` and ``y``."""
    parts = [one for one in tokens(piece) if one.kind != "space"]
    name_parts = 2 * len(node["qualified_name"]["path"]) - 1
    opening = _opening(parts, name_parts)
    arrow = next(one for one in parts[opening:] if one.text == "=>")
    alias = piece[parts[name_parts - 1].end : parts[opening].start].strip() or f"AS {quoted(_plain(node))}"
    path = ".".join(quoted(part) for part in stand_in if part is not None)
    return f"{path} {alias}", piece[arrow.end : parts[-1].start]


def _opening(parts: list[Token], after: int) -> int:
    """The position of AT: a word before a parenthesis, behind the table and its alias."""
    for index in range(after, len(parts) - 2):
        if parts[index].is_word("AT") and parts[index + 2].is_word("TIMESTAMP", "VERSION"):
            return index
    raise InvalidQuery("write AT (TIMESTAMP => …) or AT (VERSION => …) behind a table")


def _plain(node: dict[str, Any]) -> str:
    return str(node["qualified_name"]["path"][-1])


def _instant(connection: duckdb.DuckDBPyConnection, unit: str, expression: str) -> At:
    wanted = f"epoch_us(CAST(({expression}) AS TIMESTAMPTZ))" if unit == "TIMESTAMP" else f"({expression})"
    with told():
        ((value,),) = connection.execute(f"SELECT {wanted}").fetchall()
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidQuery(
            f"AT ({unit} =>{expression}) is not a {'time' if unit == 'TIMESTAMP' else 'number'}"
        )
    return _EPOCH + datetime.timedelta(microseconds=value) if unit == "TIMESTAMP" else value
