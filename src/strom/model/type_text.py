"""SQL text to type: ``DECIMAL(10, 2) NOT NULL``, ``MAP<STRING, ROW<a INT, `b c` ARRAY<DATE>>>``.

Case does not matter. Without parameters, DECIMAL is (10, 0), CHAR and BINARY (1), TIME (0), TIMESTAMP (6), as in the
SQL standard and in the peer.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import NoReturn

from strom.errors import InvalidTable
from strom.model import data_type as types
from strom.model.token_reader import TokenReader

_TOKEN = re.compile(
    r"\s*(?:(?P<word>[^\W\d]\w*)|(?P<number>\d{1,10})|`(?P<quoted>(?:[^`]|``)*)`|(?P<sign>[<>(),:]))"
)

_WORDS: dict[str, type[types.DataType]] = {kind.word: kind for kind in types.SCALARS}
_ALIASES = {"INTEGER": "INT", "BOOL": "BOOLEAN", "DEC": "DECIMAL", "NUMERIC": "DECIMAL"}
_ELSEWHERE = {
    "VARCHAR": "STRING",
    "TEXT": "STRING",
    "VARBINARY": "BYTES",
    "BLOB": "BYTES",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMP_LTZ",
    "STRUCT": "ROW",
    "LIST": "ARRAY",
    "INT64": "BIGINT",
    "INT32": "INT",
    "INT16": "SMALLINT",
    "INT8": "TINYINT",
    "UINT32": "BIGINT",
    "UINT16": "INT",
    "UINT8": "SMALLINT",
    "FLOAT64": "DOUBLE",
    "FLOAT32": "FLOAT",
    "STR": "STRING",
    "UTF8": "STRING",
    "LARGE_STRING": "STRING",
    "JSON": "STRING",
    "UUID": "STRING",
    "DATE32": "DATE",
    "DICT": "MAP",
}
_PARAMETERS: dict[type[types.DataType], tuple[int, ...]] = {
    types.Decimal: (10, 0),
    types.Char: (1,),
    types.Binary: (1,),
    types.Time: (0,),
    types.Timestamp: (6,),
    types.TimestampLtz: (6,),
}


def parse(text: str) -> types.DataType:
    """The type in SQL text; :class:`InvalidTable` says where it cannot be read."""
    reader = _Reader(text, _TOKEN)
    data_type = reader.type(1)
    if reader.kind != "end":
        reader.fail("the end")
    return data_type


class _Reader(TokenReader):
    """Recursive descent over the text of a type."""

    def fail(self, wanted: str) -> NoReturn:
        """Refuse the text as a type."""
        raise InvalidTable(
            f"{self.text!r} is not a type: expected {wanted} at position {self.start}",
            text=self.text,
            position=self.start,
        )

    def type(self, depth: int) -> types.DataType:
        if depth > types.DEPTH_MAX:
            self.fail(f"at most {types.DEPTH_MAX} levels")
        data_type = self.bare_type(depth)
        if self.skip_word("not"):
            if not self.skip_word("null"):
                self.fail("NULL")
            return data_type.as_nullable(False)
        self.skip_word("null")
        return data_type

    def bare_type(self, depth: int) -> types.DataType:
        if self.kind != "word":
            self.fail("the name of a type")
        word = _ALIASES.get(self.token.upper(), self.token.upper())
        if word in _WORDS:
            self.advance()
            kind = _WORDS[word]
            return kind(*self.parameters(_PARAMETERS.get(kind, ())))
        if word not in ("ARRAY", "MAP", "ROW"):
            self.fail(_suggestion(word))
        self.advance()
        self.need("<")
        nested = self.nested(word, depth + 1)
        self.need(">")
        return nested

    def nested(self, word: str, depth: int) -> types.DataType:
        if word == "ARRAY":
            return types.Array(self.type(depth))
        if word == "MAP":
            key = self.type(depth)
            self.need(",")
            return types.Map(key, self.type(depth))
        fields = [self.field(depth)]
        while self.skip(","):
            fields.append(self.field(depth))
        return types.Row(tuple(fields))

    def field(self, depth: int) -> types.RowField:
        if self.kind not in ("word", "quoted"):
            self.fail("the name of a field")
        name = self.token.replace("``", "`")
        self.advance()
        self.skip(":")
        return types.RowField(name, self.type(depth))

    def parameters(self, defaults: tuple[int, ...]) -> tuple[int, ...]:
        """The numbers in parentheses, with defaults for missing ones."""
        if not defaults or not self.skip("("):
            return defaults
        found = [self.number()]
        while len(found) < len(defaults) and self.skip(","):
            found.append(self.number())
        self.need(")")
        return (*found, *defaults[len(found) :])

    def number(self) -> int:
        if self.kind != "number":
            self.fail("a number")
        value = int(self.token)
        self.advance()
        return value


def _suggestion(word: str) -> str:
    known = [*_WORDS, "ARRAY", "MAP", "ROW"]
    close = [_ELSEWHERE[word]] if word in _ELSEWHERE else get_close_matches(word, known, 1)
    return f"a type (did you mean {close[0]}?)" if close else "a type"
