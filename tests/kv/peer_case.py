"""A batch of changes that pyfluss 1.0.0 sent, byte for byte, with the rows it was given."""

from __future__ import annotations

from typing import Any, NamedTuple


class Case(NamedTuple):
    name: str
    columns: dict[str, str]
    """Their types in SQL."""
    key: tuple[str, ...]
    rows: list[dict[str, Any]]
    deleted: list[dict[str, Any]]
    """Deleted after the rows were put."""
    hex: str
