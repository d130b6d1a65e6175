"""The tokens of a query: enough of SQL's syntax to find parameters outside of strings, names and comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<text>[eE]'(?:\\.|''|[^'\\])*'|'(?:''|[^'])*'|\$(?P<tag>[A-Za-z_]*)\$.*?\$(?P=tag)\$)
    |(?P<name>"(?:""|[^"])*")
    |(?P<mark>\?|\$\w+)
    |(?P<word>[^\W\d][\w$]*)
    |(?P<number>\d[\w.]*)
    |(?P<sign>=>|.)
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """A piece of a query's text. Kinds: space (comments too), text, name (quoted), mark, word, number, sign."""

    kind: str
    text: str
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these words, in any case."""
        return self.kind == "word" and self.text.upper() in words


def tokens(query: str) -> Iterator[Token]:
    """All tokens in order; joined they are the query."""
    for match in _TOKEN.finditer(query):
        kind = "text" if match.lastgroup == "tag" else match.lastgroup
        assert kind is not None
        yield Token(kind, match.group(), match.start(), match.end())
