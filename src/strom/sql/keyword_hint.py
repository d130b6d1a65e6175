"""A hint for a column whose name is an SQL keyword: DuckDB only points at the place."""

from __future__ import annotations

import itertools
import re

_NEAR = re.compile(r'syntax error at or near "(\w+)"')
_WORDS = """
all analyse analyze and any array asc asymmetric both case cast check collate column constraint create default
deferrable desc describe distinct do else end except fetch foreign grant group in initially intersect into lateral
leading limit not null offset only or order pivot placing primary qualify references returning show some summarize
symmetric table then to trailing union unique unpivot using variadic when window with
"""
WORDS_AS_NAMES = frozenset(_WORDS.split())
"""DuckDB's reserved words that people use as column names; an error at another one is a plain typo."""


def keyword_hint(text: str) -> str:
    """The hint, or an empty text."""
    found = _NEAR.search(text)
    if found is None:
        return ""
    line = re.search(r"LINE \d+: (.*)", text)
    before = re.findall(r"\w+", line[1][: max(_caret(text), 0)]) if line is not None else []
    for word in [found[1], *before[-1:]]:
        if word.lower() in WORDS_AS_NAMES:
            return f'\n{word} is an SQL keyword: write a column of that name as "{word}"'
    return ""


def _caret(text: str) -> int:
    """The position DuckDB points at in the line it shows."""
    for line, below in itertools.pairwise(text.splitlines()):
        shown = re.match(r"LINE \d+: ", line)
        if shown is not None and "^" in below:
            return below.index("^") - shown.end()
    return 0
