"""Lists of row ids by the hash of a tuple of columns: what prefix and secondary indexes are made of.

A head table (shards.py) holds the first row of each list; an array by row id holds the previous row, the next row and
the tuple's hash. So linking and unlinking take the same time in a list of one row and in one of a million. Tuples that
share a hash share a list, so readers compare the columns.

One thread changes the lists; readers in other threads hold the tablet's lock during a call. Derived, never stored.
Memory: 16 bytes per row id, and 12 per slot of the head table.
"""

from __future__ import annotations

import numpy as np

from strom.kv.arrays import Bools, Hashes, Int64s
from strom.kv.index import row_list_kernels as kernels
from strom.kv.index.shards import Shards
from strom.kv.kernels.reserved_memory import Cells

MAX_ROW_IDS = (1 << 31) - 2


class RowLists:
    """Row ids in lists, each row in one list or in none."""

    def __init__(self) -> None:
        self._heads = Shards()
        self._cells = Cells(kernels.CELL_BYTES)
        self._size = 0
        self._linked = 0

    @property
    def linked(self) -> int:
        """Rows that are in a list."""
        return self._linked

    @property
    def memory_bytes(self) -> int:
        """Memory in use."""
        return self._heads.memory_bytes + kernels.CELL_BYTES * self._size

    def link(self, row_ids: Int64s, hashes: Hashes) -> None:
        """Move rows into the lists of these hashes; a row that is in the right list already stays."""
        row_ids = np.ascontiguousarray(row_ids, np.int64)
        hashes = np.ascontiguousarray(hashes, np.uint64)
        if len(row_ids) != len(hashes):
            raise ValueError("row ids and hashes differ in number")
        if not len(row_ids):
            return
        if row_ids.min() < 0 or (beyond := int(row_ids.max()) + 1) > MAX_ROW_IDS:
            raise ValueError("a row id out of range")
        self._cells.ensure(beyond)
        self._size = max(self._size, beyond)
        done, moved = 0, np.zeros(1, np.int64)
        try:
            while done < len(row_ids):
                heads = self._heads
                done = kernels.link(
                    row_ids,
                    hashes,
                    done,
                    heads.shift,
                    heads.directory,
                    heads.shards,
                    self._cells.table,
                    moved,
                )
                if done < len(row_ids):
                    heads.grow(heads.shard_of(int(hashes[done])))
        finally:
            self._linked += int(moved[0])

    def unlink(self, row_ids: Int64s) -> None:
        """Remove rows from their lists; a row that is in no list is ignored."""
        row_ids = np.ascontiguousarray(row_ids, np.int64)
        heads = self._heads
        self._linked -= kernels.unlink(
            row_ids, self._size, heads.shift, heads.directory, heads.shards, self._cells.table
        )

    def rows_many(self, hashes: Hashes) -> tuple[Int64s, Int64s]:
        """The rows of several lists, in each the most recently linked first: positions in ``hashes``, and row ids."""
        hashes = np.ascontiguousarray(hashes, np.uint64)
        first = self._heads.find(hashes)
        total = kernels.count(first, self._cells.table)
        which, row_ids = np.empty(total, np.int64), np.empty(total, np.int64)
        kernels.take(first, self._cells.table, which, row_ids)
        return which, row_ids

    def hash_of(self, row_ids: Int64s) -> tuple[Hashes, Bools]:
        """The hash under which each row is linked, and whether it is."""
        row_ids = np.ascontiguousarray(row_ids, np.int64)
        hashes, linked = np.empty(len(row_ids), np.uint64), np.empty(len(row_ids), np.bool_)
        kernels.hashes_of(row_ids, self._size, self._cells.table, hashes, linked)
        return hashes, linked
