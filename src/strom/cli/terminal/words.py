"""Arguments that several commands parse: key=value pairs, column lists, places in a table."""

from __future__ import annotations

import datetime
import json
import re
from typing import Annotated

import typer

SkipMissing = Annotated[
    bool,
    typer.Option("--skip-missing", help="Start where the servers do if they no longer have the beginning."),
]

_TIME = "2026-11-15T08:00:00Z"
Place = str | int | datetime.datetime


def pairs(words: list[str]) -> dict[str, str]:
    """``["a=1", "b=2"]`` as a dict; a word without ``=`` is refused."""
    found = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise typer.BadParameter(f"{word!r} is not of the form key=value")
        found[key.strip()] = value
    return found


def key_words(word: str) -> dict[str, str]:
    """``user=7,number=12``, ``user="a, b",number=12`` or ``{"user": "a, b", "number": 12}`` as a dict of texts."""
    if word.startswith("{"):
        try:
            found = json.loads(word)
        except ValueError as error:
            raise typer.BadParameter(f"{word!r} is not a JSON object: {error}") from None
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in found.items()}
    parts = re.findall(r'(?:[^,"]|"(?:[^"]|"")*"?)+', word)
    return {name: _unquoted(value) for name, value in pairs(parts).items()}


def _unquoted(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return value[1:-1].replace('""', '"')
    return value


def names(text: str | None) -> list[str] | None:
    """``"a, b"`` as names; None when nothing was given."""
    if text is None:
        return None
    found = [name.strip() for name in text.split(",") if name.strip()]
    if not found:
        raise typer.BadParameter("give at least one column name")
    return found


def place(text: str | None) -> Place | None:
    """Where to start or end: ``earliest``, ``latest``, an offset, or a time such as 2026-11-15T08:00:00Z."""
    if text is None or text in ("earliest", "latest"):
        return text
    return _number_or_time(text, f"{text!r} is none of: earliest, latest, an offset (42), a time ({_TIME})")


def moment(text: str | None) -> int | datetime.datetime | None:
    """An instant of tables: a time, or the id of a lake snapshot."""
    if text is None:
        return None
    return _number_or_time(text, f"--at {text}: give a time ({_TIME}), or the id of a lake snapshot")


def instant(text: str | None) -> Place | None:
    """An instant of one table: as ``moment``, or an offset; ``latest`` is now."""
    if text is None or text == "latest":
        return text
    wanted = f"--at {text}: give a time ({_TIME}), the id of a lake snapshot, or an offset (42)"
    return _number_or_time(text, wanted)


def _number_or_time(text: str, otherwise: str) -> int | datetime.datetime:
    if text.isdecimal():
        return int(text)
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(otherwise) from None
    return found.astimezone() if found.tzinfo is None else found
