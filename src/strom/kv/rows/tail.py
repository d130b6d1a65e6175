"""The tail: the stored records of [C, end), copied from the changelog into blocks in memory.

No operation depends on the number of rows: the tail grows by blocks and by chunks of its table of positions, and drops
them whole after a carry. Truncation copies the block and the chunk it cuts, because later records would overwrite rows
that a reader may still use.
"""

from __future__ import annotations

import numpy as np

from strom.kv.arrays import Bools, Int32s
from strom.kv.gather.column_source import ColumnSource
from strom.kv.gather.row_layout import RowLayout
from strom.kv.rows.base_layout import BLOCK_DATA_BYTES, BLOCK_ROWS
from strom.kv.rows.live_bits import count
from strom.kv.rows.tail_block import TailBlock
from strom.kv.rows.tail_kernels import CLOSE
from strom.kv.rows.tail_positions import BLOCK_MASK, Positions

NO_ROWS: Int32s = np.empty(0, np.int32)


class RowTail:
    """Blocks in memory, and where each offset is in them."""

    def __init__(self, layout: RowLayout, start: int, block_data_bytes: int = BLOCK_DATA_BYTES) -> None:
        self.layout = layout
        self.start = start
        self.end = start
        self.blocks: list[TailBlock] = []
        self.first_block = 0
        """The number of the first block, counted from the first there ever was."""
        self.positions = Positions(start)
        self._block_data_bytes = block_data_bytes
        self._carried = 0  # rows of the first block that are below start
        self._done = np.zeros(2, np.int64)
        self._before: tuple[int, ...] | None = None  # what a full block needed

    @property
    def rows(self) -> int:
        """Stored rows."""
        return sum(block.count for block in self.blocks) - self._carried

    @property
    def bytes(self) -> int:
        """Memory taken."""
        return sum(block.bytes for block in self.blocks) + self.positions.bytes

    def add(
        self,
        source: ColumnSource,
        base_offset: int,
        stored: Bools,
        tombstone: Bools,
        next_offset: int,
        rows: Int32s = NO_ROWS,
    ) -> int | None:
        """Add the stored records; record i is row ``rows[i]`` of the source, or row i if ``rows`` is empty.

        Returns the number of the first block with a new view, or None. The number after the last block means that only
        the table of positions has a new view.
        """
        assert base_offset == self.end, f"records at {base_offset} do not follow {self.end}"
        size = len(stored)
        changed: int | None = None
        if self.positions.reach(base_offset, base_offset + size):
            changed = len(self.blocks)
        begin = 0
        while begin < size:
            blocks = self.blocks
            if not blocks or blocks[-1].count == BLOCK_ROWS:
                changed = self._open(changed)
            block = blocks[-1]
            answer = block.take_in(
                source,
                stored,
                tombstone,
                rows,
                begin,
                base_offset,
                self._block_data_bytes,
                self.first_block + len(blocks) - 1,
                self.positions.view,
                self._done,
            )
            if answer == CLOSE:
                changed = self._open(changed)
                continue
            if answer:
                changed = _earlier(changed, len(blocks) - 1)
            begin = int(self._done[1])
        self.end = next_offset
        return changed

    def _open(self, changed: int | None) -> int:
        if self.blocks:
            self._before = self.blocks[-1].data_sizes()
        assert len(self.blocks) < BLOCK_MASK
        self.blocks.append(TailBlock(self.layout, self._before))
        return _earlier(changed, len(self.blocks) - 1)

    def cut(self, end: int) -> int:
        """Forget the records at and above ``end``; returns how many of them were live."""
        assert self.start <= end <= self.end
        before = sum(count(block.live) for block in self.blocks)
        while self.blocks:
            kept = self.blocks[-1].rows_below(end)
            if kept > (self._carried if len(self.blocks) == 1 else 0):
                self.blocks[-1] = self.blocks[-1].first(kept)
                break
            self.blocks.pop()
        if not self.blocks:
            self._carried = 0
        self.positions.cut(end)
        self.end = end
        return before - sum(count(block.live) for block in self.blocks)

    def drop(self, start: int) -> int:
        """Forget the records below ``start``, which a base file now holds; returns how many of them were live."""
        assert self.start <= start <= self.end
        gone = 0
        while gone < len(self.blocks) and self.blocks[gone].is_below(start):
            gone += 1
        live = sum(count(block.live) for block in self.blocks[:gone])
        if gone == len(self.blocks) and gone > 1:
            self._before = self.blocks[-2].data_sizes()  # of a full one
        self.blocks = self.blocks[gone:]
        self.first_block += gone
        self._carried = 0
        if self.blocks:
            self._carried = self.blocks[0].rows_below(start)
            live += self.blocks[0].bury(self._carried)
        self.positions.drop(start)
        self.start = start
        return live

    def widen(self, layout: RowLayout) -> None:
        """Take a newer schema, for the growing block and later ones."""
        self.layout = layout
        self._before = None
        if self.blocks:
            self.blocks[-1].widened(layout)


def _earlier(changed: int | None, block: int) -> int:
    return block if changed is None else min(changed, block)
