"""Memory reserved ahead of use: arrays that grow without being copied, and cost only the pages that were touched.

A reservation is anonymous memory that the system hands out page by page at the first write; it reads as zeros. So
users of it let zero mean "nothing", and clearing is free.

:class:`Cells` is an array of items indexed by a dense number (a row id), made of large chunks that are found through a
small table of addresses. Growing adds a chunk; holders of the old table are not disturbed. Kernels reach an item by
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
    """``size`` zero bytes that take memory only where they are written. The memory is freed with the array.

    ``large``: all of it will be used, in random order, so it may come in huge pages, which are several times faster to
    find and to fill. Not for a bucket with few keys, whose tables must not take megabytes each.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
    memory = mmap.mmap(-1, size, flags=flags)
    if large and _HUGE_PAGES is not None:
        with suppress(OSError):  # only a hint: not every system has them
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
