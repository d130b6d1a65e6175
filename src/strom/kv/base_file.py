"""Base files: where live images end up (signatures; the format follows)."""

from __future__ import annotations

from strom.runtime.files import Files


class BaseFile:
    """One immutable file of rows, mapped."""

    path: str
    schema_id: int
    start: int
    end: int
    rows: int
    bytes: int

    @classmethod
    def open(cls, files: Files, path: str) -> BaseFile:
        """Map and check everything but the columns, which are checked at their first read."""
        raise NotImplementedError
