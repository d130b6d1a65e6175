"""Where the row of each offset of the tail lies: a table in chunks, so that it grows and shrinks without a copy.

Chunk ``offset >> 16`` has a cell for each of its offsets: 0 for nothing, else 1 + (block number modulo 32 Ki) << 16 |
row. Blocks are numbered from the first the tail ever had, so that dropping some changes no cell. Chunks without stored
rows are not allocated. Cells of offsets below the tail's start are stale and mean nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from strom.kv.arrays import Int64s

CHUNK_SHIFT: Final = 16
CHUNK_OFFSETS: Final = 1 << CHUNK_SHIFT
BLOCK_MASK: Final = 0x7FFF
"""Block numbers are kept modulo this plus one: the tail never holds that many."""

Cells = npt.NDArray[np.uint32]


class PositionsView(NamedTuple):
    """The table as one directory knows it. It may contain offsets stored later."""

    first: int
    """The number of the first chunk."""
    addresses: Int64s
    """Of the chunks; 0 for one that is not allocated."""
    keep: tuple[Cells | None, ...]


class Positions:
    """The table. What a view says about known offsets stays true until they are cut."""

    def __init__(self, start: int) -> None:
        self._chunks: list[Cells | None] = []
        self.restart(start)

    def restart(self, start: int) -> None:
        """Empty the table; the next offset is at or above ``start``."""
        self._chunks = []
        self._renew(start >> CHUNK_SHIFT)

    def _renew(self, first: int) -> None:
        addresses = [0 if one is None else one.ctypes.data for one in self._chunks]
        self.view = PositionsView(first, np.array(addresses, np.int64), tuple(self._chunks))

    @property
    def bytes(self) -> int:
        """Memory taken."""
        return sum(one.nbytes for one in self._chunks if one is not None)

    def reach(self, low: int, high: int) -> bool:
        """Allocate cells for [low, high), the next offsets. True when there is a new view."""
        first = self.view.first
        have = len(self._chunks) - 1
        if high <= low or ((high - 1 >> CHUNK_SHIFT) - first == have and self._chunks[have] is not None):
            return False
        begin, end = (low >> CHUNK_SHIFT) - first, (high - 1 >> CHUNK_SHIFT) - first
        self._chunks.extend([None] * (end + 1 - len(self._chunks)))
        for at in range(begin, end + 1):
            if self._chunks[at] is None:
                self._chunks[at] = np.zeros(CHUNK_OFFSETS, np.uint32)
        self._renew(first)
        return True

    def drop(self, start: int) -> None:
        """Free the cells of offsets below ``start``."""
        first = start >> CHUNK_SHIFT
        self._chunks = self._chunks[first - self.view.first :]
        self._renew(first)

    def cut(self, end: int) -> None:
        """Forget the offsets at and above ``end``. Older views keep them."""
        first = self.view.first
        last = (end >> CHUNK_SHIFT) - first
        self._chunks = self._chunks[: last + 1]
        chunk = self._chunks[last] if last < len(self._chunks) else None
        if chunk is not None:
            kept = np.zeros(CHUNK_OFFSETS, np.uint32)
            within = end & CHUNK_OFFSETS - 1
            kept[:within] = chunk[:within]
            self._chunks[last] = kept
        self._renew(first)
