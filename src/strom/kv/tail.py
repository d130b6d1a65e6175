"""The tail: the stored records of [C, end), copied from the changelog into blocks in memory.

``positions[offset - start]`` is block number << 16 | row, or -1 when nothing is stored for this offset. It grows like a
block's columns: by a larger array, so that a snapshot keeps the one it was made with. Truncation copies what it keeps,
because later records would overwrite rows that a reader may still look at.
"""

from __future__ import annotations

import numpy as np

from strom.kv.base_layout import BLOCK_ROWS
from strom.kv.columns import Bools, Int32s, Source
from strom.kv.layout import Layout
from strom.kv.live import count
from strom.kv.tail_block import TailBlock

FIRST_OFFSETS = 4096


class Tail:
    """Blocks in memory, and where each offset is in them."""

    def __init__(self, layout: Layout, start: int) -> None:
        self.layout = layout
        self.start = start
        self.end = start
        self.blocks: list[TailBlock] = []
        self.positions: Int32s = np.full(FIRST_OFFSETS, -1, np.int32)
        self._carried = 0  # rows of the first block that are below start

    @property
    def rows(self) -> int:
        """Stored rows."""
        return sum(block.count for block in self.blocks) - self._carried

    @property
    def bytes(self) -> int:
        """Memory taken."""
        return sum(block.bytes for block in self.blocks) + int(self.positions.nbytes)

    def add(
        self, source: Source, base_offset: int, stored: Bools, tombstone: Bools, next_offset: int
    ) -> int | None:
        """Add the stored rows of a source. The number of the first block whose view is new, if any is."""
        assert base_offset == self.end, f"records at {base_offset} do not follow {self.end}"
        changed = self._grow(next_offset)
        addresses = source.addresses[np.newaxis]
        rows: Int32s = np.flatnonzero(stored).astype(np.int32)
        done = 0
        while done < len(rows):
            if not self.blocks or self.blocks[-1].count == BLOCK_ROWS:
                self._open()
                changed = _earlier(changed, len(self.blocks) - 1)
            block = self.blocks[-1]
            some = rows[done : done + BLOCK_ROWS - block.count]
            sizes = block.fits(addresses, some)
            if sizes is None:
                self._open()
                changed = _earlier(changed, len(self.blocks) - 1)
                continue
            first = (len(self.blocks) - 1 << 16) + block.count
            offsets = some.astype(np.int64) + base_offset
            if block.append(source, some, offsets, tombstone[some], sizes):
                changed = _earlier(changed, len(self.blocks) - 1)
            self.positions[offsets - self.start] = np.arange(first, first + len(some), dtype=np.int32)
            done += len(some)
        self.end = next_offset
        return changed

    def _open(self) -> None:
        self.blocks.append(TailBlock(self.layout, self.blocks[-1] if self.blocks else None))

    def _grow(self, end: int) -> int | None:
        room = len(self.positions)
        if end - self.start <= room:
            return None
        while room < end - self.start:
            room *= 2
        larger = np.full(room, -1, np.int32)
        larger[: len(self.positions)] = self.positions
        self.positions = larger
        return len(self.blocks)

    def cut(self, end: int) -> int:
        """Forget the records at and above ``end``. How many of them were live."""
        assert self.start <= end <= self.end
        before = sum(count(block.live) for block in self.blocks)
        kept = self.positions[: end - self.start]
        self.positions = np.full(len(self.positions), -1, np.int32)
        self.positions[: len(kept)] = kept
        last = int(kept.max(initial=-1))
        if last >= 0:
            del self.blocks[(last >> 16) + 1 :]
            self.blocks[-1] = self.blocks[-1].first((last & 0xFFFF) + 1)
        else:
            self.blocks, self._carried = [], 0
        self.end = end
        return before - sum(count(block.live) for block in self.blocks)

    def drop(self, start: int) -> int:
        """Forget the records below ``start``, which a base file holds now. How many blocks went with them."""
        assert self.start <= start <= self.end
        kept = self.positions[start - self.start : self.end - self.start]
        held = kept[kept >= 0]
        gone = int(held[0]) >> 16 if len(held) else len(self.blocks)
        del self.blocks[:gone]
        self._carried = int(held[0]) & 0xFFFF if len(held) else 0
        if self.blocks:
            self.blocks[0].bury(self._carried)
        room = max(FIRST_OFFSETS, 1 << max(0, len(kept) - 1).bit_length())
        self.positions = np.full(room, -1, np.int32)
        self.positions[: len(kept)] = np.where(kept >= 0, kept - (gone << 16), -1)
        self.start = start
        return gone

    def widen(self, layout: Layout) -> None:
        """A newer schema, for the block that still grows and those to come."""
        self.layout = layout
        if self.blocks:
            self.blocks[-1].widened(layout)


def _earlier(changed: int | None, block: int) -> int:
    return block if changed is None else min(changed, block)
