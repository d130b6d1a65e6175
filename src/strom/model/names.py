"""Which names are allowed, and what to say about one that is not.

Names of databases and tables never become paths (ids do), but they do pass through shells, URLs and lake catalogs. So
they have letters, digits, ``_`` and ``-``, at most 200 characters. A leading ``__`` is reserved for the system.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import Literal

from strom.errors import InvalidDatabase, InvalidTable
from strom.model.document import encodable

NAME_LENGTH_MAX = 200
COLUMN_NAME_LENGTH_MAX = 256
COMMENT_LENGTH_MAX = 64 * 1024

RESERVED_COLUMNS = frozenset(
    {"__bucket", "__offset", "__timestamp", "_change_type", "_log_offset", "_commit_timestamp"}
)
"""Names of columns that changelogs and lake tables add."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_ERRORS: dict[str, type[InvalidDatabase] | type[InvalidTable]] = {
    "database": InvalidDatabase,
    "table": InvalidTable,
}


def check_name(kind: Literal["database", "table"], text: str) -> None:
    """Refuse an invalid name of a database or a table."""
    complaint = name_complaint(text)
    if complaint is not None:
        raise _ERRORS[kind](f"{_shown(text)} cannot name a {kind}: {complaint}", name=text)


def name_complaint(text: str) -> str | None:
    """What is wrong with a name, or None."""
    return complaint_about(text, _NAME, "use letters, digits, '_' and '-', and do not begin with '-'")


def complaint_about(text: str, pattern: re.Pattern[str], advice: str) -> str | None:
    """What is wrong with a name that has to match a pattern, or None."""
    if not text:
        return "it is empty"
    if len(text) > NAME_LENGTH_MAX:
        return f"it has {len(text)} characters; at most {NAME_LENGTH_MAX} are allowed"
    if not pattern.fullmatch(text):
        return advice
    if text.startswith("__"):
        return "names that begin with '__' are reserved for the system"
    return None


def check_column_name(text: str) -> None:
    """Refuse an invalid column name. Columns are freer than tables: any printable text will do."""
    complaint = None
    if not text:
        complaint = "it is empty"
    elif len(text) > COLUMN_NAME_LENGTH_MAX:
        complaint = f"it has {len(text)} characters; at most {COLUMN_NAME_LENGTH_MAX} are allowed"
    elif not text.isprintable():
        complaint = "it has characters that cannot be printed"
    elif text in RESERVED_COLUMNS:
        complaint = "changelogs and lake tables have a column of this name"
    if complaint is not None:
        raise InvalidTable(f"{_shown(text)} cannot name a column: {complaint}", column=text)


def check_comment(text: str | None) -> None:
    """Refuse a comment that is too long, or not text."""
    if text is None:
        return
    if len(text) > COMMENT_LENGTH_MAX:
        raise InvalidTable(f"A comment has at most {COMMENT_LENGTH_MAX} characters", length=len(text))
    if not encodable(text):
        raise InvalidTable("A comment has half a surrogate pair, which is not a character")


COMPARED_MAX = 200
"""The most names a mistyped one is compared with, which takes a millisecond or two."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a complaint: `` (did you mean 'price'?)`` when a known word is close, else nothing."""
    from difflib import get_close_matches  # only ever needed on the way to an error

    candidates = list(known)
    if (
        len(candidates) > COMPARED_MAX
    ):  # comparing is slow: only candidates of similar length with the same first letter
        alike = (one for one in candidates if one[:1] == word[:1] and abs(len(one) - len(word)) <= 2)
        candidates = list(islice(alike, COMPARED_MAX))
    close = get_close_matches(word, candidates, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
