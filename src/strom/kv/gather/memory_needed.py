"""Rows that are found and not copied: they take more memory than is allowed so far."""

from __future__ import annotations


class MemoryNeeded(Exception):
    """The rows take ``size`` bytes, or about so many: have that much memory first, and ask again."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the rows found take {size} bytes")
        self.size = size
