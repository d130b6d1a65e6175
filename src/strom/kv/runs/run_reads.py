"""How pages of runs are read, and how many were. Loads no kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strom.runtime.files import File

PageRead = tuple[File, int, memoryview]
"""File, position, room for the bytes."""
ReadPages = Callable[[Sequence[PageRead]], bool]
"""Fills all rooms; False when a file ended early."""


def read_in_turn(pages: Sequence[PageRead]) -> bool:
    """One page after the other."""
    return all(file.read_into(position, [room]) == len(room) for file, position, room in pages)


class RunReads:
    """How pages are read, and how many were. Counts only grow; concurrent readers may count as one."""

    def __init__(self, read: ReadPages = read_in_turn) -> None:
        self.read = read
        self.asked = 0
        """Hashes that were looked for in runs."""
        self.pages = 0
        """Pages read for them."""
