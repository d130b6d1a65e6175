"""A JSON object from outside, validated as it is read.

Table descriptions arrive as JSON from any client, so every access checks what it finds. Errors are of the class the
document was opened with, and name the place (``table.schema.columns[3].id``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from strom.errors import StromError

INT_MAX = 2**31 - 1


class Document:
    """One JSON object and the path that led to it."""

    __slots__ = ("_error", "path", "value")

    def __init__(self, value: object, path: str, error: type[StromError]) -> None:
        self.path = path
        self._error = error
        if not isinstance(value, dict):
            self.refuse("", "must be a JSON object", found=type(value).__name__)
        self.value: Mapping[str, Any] = value

    @classmethod
    def parse(
        cls, text: bytes | bytearray | memoryview | str, path: str, error: type[StromError]
    ) -> Document:
        """Parse JSON text; refuses anything that is not a JSON object."""
        try:
            raw = text if isinstance(text, str) else bytes(text).decode("utf-8")
            value = json.loads(raw, parse_constant=_no_constant)
        except (ValueError, RecursionError) as problem:
            raise error(f"The {path} is not valid JSON: {problem}", path=path) from problem
        return cls(value, path, error)

    def refuse(self, key: str, complaint: str, **facts: object) -> NoReturn:
        """Raise the document's error about one key."""
        place = f"{self.path}.{key}" if key else self.path
        raise self._error(f"{place} {complaint}", path=place, **facts)

    def has(self, key: str) -> bool:
        """Whether the key is present and not null."""
        return self.value.get(key) is not None

    def raw(self, key: str) -> object:
        """The value as JSON gave it, or None."""
        return self.value.get(key)

    def text(self, key: str) -> str:
        """A required string."""
        return self._text(key, self.value.get(key))

    def text_or_none(self, key: str) -> str | None:
        """A string, or None when it is absent."""
        return self.text(key) if self.has(key) else None

    def integer(self, key: str, *, low: int, high: int = INT_MAX, default: int | None = None) -> int:
        """A whole number between ``low`` and ``high``; ``default`` when it is absent."""
        value = self.value.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(key, "must be a whole number", found=value)
        if not low <= value <= high:
            self.refuse(key, f"must be between {low} and {high}, not {value}", found=value)
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false; ``default`` when it is absent."""
        value = self.value.get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, "must be true or false", found=value)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty when it is absent."""
        return tuple(self._text(f"{key}[{i}]", item) for i, item in enumerate(self._items(key)))

    def mapping(self, key: str) -> dict[str, str]:
        """An object from strings to strings; empty when it is absent."""
        value = self.value.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.refuse(key, "must be a JSON object", found=type(value).__name__)
        return {self._text(key, name): self._text(f"{key}.{name}", item) for name, item in value.items()}

    def document(self, key: str) -> Document:
        """An object inside this one."""
        return Document(self.value.get(key), f"{self.path}.{key}", self._error)

    def documents(self, key: str) -> Iterator[Document]:
        """The objects of a list; none when it is absent."""
        for i, item in enumerate(self._items(key)):
            yield Document(item, f"{self.path}.{key}[{i}]", self._error)

    def _items(self, key: str) -> list[object]:
        value = self.value.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.refuse(key, "must be a list", found=type(value).__name__)
        return value

    def _text(self, key: str, value: object) -> str:
        if not isinstance(value, str):
            self.refuse(key, "must be text", found=value)
        if not encodable(value):
            self.refuse(key, "has half a surrogate pair, which is not a character")
        return value


def encodable(text: str) -> bool:
    """Whether the text can be encoded as UTF-8: a JSON escape can smuggle in half a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def canonical(value: object) -> str:
    """Compact JSON with sorted keys: the peer's form, and the same text for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
