"""Values for a query's parameters: ``?`` and ``$1`` by position, ``$name`` by name.

They become literals in the text before DuckDB parses it. So a filter on a parameter reaches lake and servers like one
on a constant, and no value can be taken for SQL.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Mapping, Sequence
from typing import Any

from strom.errors import InvalidQuery
from strom.sql.duck import literal
from strom.sql.tokens import Token, tokens

Parameters = Sequence[Any] | Mapping[str, Any]


def filled(query: str, parameters: Parameters) -> str:
    """The query with its values; InvalidQuery when parameters and values do not match."""
    values = _ByName(parameters) if isinstance(parameters, Mapping) else _ByPosition(parameters)
    text = "".join(values.of(one) if one.kind == "mark" else one.text for one in tokens(query))
    values.check_all_used()
    return text


class _ByPosition:
    def __init__(self, values: Sequence[Any]) -> None:
        if isinstance(values, str | bytes):
            raise InvalidQuery("parameters are a list of values or a dict by name, not one text: [value]")
        self._values = values
        self._next = 0
        self._used: set[int] = set()

    def of(self, mark: Token) -> str:
        if mark.text == "?":
            self._next += 1
            position = self._next
        elif mark.text[1:].isdecimal():
            position = int(mark.text[1:])
        else:
            raise InvalidQuery(f"{mark.text} is given by name: pass parameters={{{mark.text[1:]!r}: …}}")
        if not 1 <= position <= len(self._values):
            raise InvalidQuery(f"the query asks for parameter {position}; {len(self._values)} were given")
        self._used.add(position)
        return literal_of(self._values[position - 1])

    def check_all_used(self) -> None:
        if len(self._used) < len(self._values):
            raise InvalidQuery(f"{len(self._values)} parameters were given; the query uses {len(self._used)}")


class _ByName:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._used: set[str] = set()

    def of(self, mark: Token) -> str:
        name = mark.text[1:]
        if name not in self._values:
            given = ", ".join(f"${one}" for one in self._values) or "none"
            raise InvalidQuery(f"the query asks for {mark.text}; given are: {given}")
        self._used.add(name)
        return literal_of(self._values[name])

    def check_all_used(self) -> None:
        unused = [name for name in self._values if name not in self._used]
        if unused:
            raise InvalidQuery(f"the query does not use the parameter ${unused[0]}")


def literal_of(value: Any) -> str:
    """A Python value as a literal of its type."""
    if hasattr(value, "item") and not isinstance(value, list | tuple):  # a numpy number
        value = value.item()
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return f"({value})"
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(literal_of, value))}]"
    return _cast(value)


def _cast(value: Any) -> str:
    if isinstance(value, float):
        said, kind = repr(value), "DOUBLE"
    elif isinstance(value, decimal.Decimal) and value.is_finite():
        said, kind = f"{value:f}", _decimal_type(value)
    elif isinstance(value, datetime.datetime):
        said, kind = value.isoformat(" "), "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
    elif isinstance(value, datetime.date):
        said, kind = value.isoformat(), "DATE"
    elif isinstance(value, datetime.time):
        said, kind = value.isoformat(), "TIME"
    elif isinstance(value, datetime.timedelta):
        said, kind = f"{value // datetime.timedelta(microseconds=1)} microseconds", "INTERVAL"
    elif isinstance(value, bytes | bytearray):
        said, kind = "".join(f"\\x{byte:02X}" for byte in value), "BLOB"
    else:
        raise InvalidQuery(
            f"a parameter cannot be a {type(value).__name__}: give a number, text, bytes, a date or time, or a list"
        )
    return f"CAST({literal(said)} AS {kind})"


def _decimal_type(value: decimal.Decimal) -> str:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    if precision > 38:
        raise InvalidQuery(f"a decimal has at most 38 digits, not {precision}")
    return f"DECIMAL({precision}, {scale})"
