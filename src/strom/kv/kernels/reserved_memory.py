"""Memory that is reserved first and used later: arrays that grow without being copied, and cost only what was touched.

A reservation is anonymous memory that the system hands out page by page when it is first written; it reads as zeros.
So whoever stores here chooses zero to mean "nothing", and clearing costs nothing.

:class:`Cells` is an array of items by a dense number (a row id), made of large chunks found through a small table of
addresses. Growing adds a chunk; nobody who holds the old table is disturbed. Kernels reach an item by
``table[number >> CHUNK_BITS] + (number & CHUNK_MASK) * size``.
"""

from __future__ import annotations

import mmap
import sys
from contextlib import suppress
from typing import Final

import numpy as np
import numpy.typing as npt

CHUNK_BITS: Final = 20
CHUNK_MASK: Final = (1 << CHUNK_BITS) - 1

_HUGE_PAGES: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)
# mmap.MAP_NORESERVE has a name in Python only since 3.13.
_NO_RESERVE = {"linux": 0x4000, "darwin": 0x40}.get(sys.platform, 0)


def reserve(size: int, *, large: bool = False) -> npt.NDArray[np.uint8]:
    """``size`` zero bytes that take memory only where they are written. The memory goes when the array goes.

    ``large``: all of it will be used, at random places. It may come in large pages then, which are found and filled
    several times faster; a bucket with few keys must not take megabytes for each of its tables.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    memory = mmap.mmap(-1, size, flags=flags)
    if large and _HUGE_PAGES is not None:
        with suppress(OSError):  # a wish: not every system has them
            memory.madvise(_HUGE_PAGES)
    return np.frombuffer(memory, np.uint8)


def address_of(array: npt.NDArray[np.generic]) -> int:
    """Where the array's memory begins."""
    return int(array.__array_interface__["data"][0])


class Cells:
    """Zeroed items of a fixed size, by number."""

    def __init__(self, item_size: int) -> None:
        self.item_size = item_size
        self.table: npt.NDArray[np.int64] = np.empty(0, np.int64)
        """The address of every chunk. Replaced, never changed, when a chunk is added."""
        self._chunks: list[npt.NDArray[np.uint8]] = []

    @property
    def capacity(self) -> int:
        """Numbers below this have an item."""
        return len(self._chunks) << CHUNK_BITS

    def ensure(self, count: int) -> None:
        """Give every number below ``count`` an item."""
        while self.capacity < count:
            self._chunks.append(reserve(self.item_size << CHUNK_BITS, large=bool(self._chunks)))
            self.table = np.array([address_of(chunk) for chunk in self._chunks], np.int64)
