"""How pages of runs are read, and how many were. Loads no kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from strom.kv.arrays import Octets
from strom.kv.runs.run_layout import PAGE_BYTES
from strom.runtime.files import File

ROOM_PAGES: Final = 1024
"""Rooms of so many pages are used again: the system would have to fill new ones with zeros."""
ROOMS_MAX: Final = 4

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
        self._rooms: list[Octets] = []
        self.asked = 0
        """Hashes that were looked for in runs."""
        self.pages = 0
        """Pages read for them."""

    def room(self, pages: int) -> Octets:
        """Room for some pages, with anything in it."""
        if pages <= ROOM_PAGES and self._rooms:
            try:
                return self._rooms.pop()[:pages]
            except IndexError:  # another thread was first
                pass
        return np.empty((max(pages, ROOM_PAGES), PAGE_BYTES), np.uint8)[:pages]

    def give_back(self, room: Octets) -> None:
        """Nobody looks at it any more."""
        whole = room.base
        if isinstance(whole, np.ndarray) and len(whole) == ROOM_PAGES and len(self._rooms) < ROOMS_MAX:
            self._rooms.append(whole)
