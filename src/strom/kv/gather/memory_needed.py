"""The signal that found rows do not fit into the memory allowed so far. Apart, because catching it needs no kernels."""

from __future__ import annotations


class MemoryNeeded(Exception):
    """The rows take about ``size`` bytes and were not copied: get that much memory, then try again."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the rows found take {size} bytes")
        self.size = size
