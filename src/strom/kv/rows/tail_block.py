"""One block of the tail: rows in columns, in memory, growing at the end.

A written row never changes. The address of a column changes only when it must grow: then the column moves to a larger
array, and holders of an older :class:`TailView` keep the smaller one. So a view stays valid for the rows it was made
for; rows added later need the newest view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strom.kv.arrays import Bools, Int32s, Int64s, Octets
from strom.kv.gather.column_source import ABSENT, ColumnSource
from strom.kv.gather.row_layout import RowLayout
from strom.kv.rows import tail_kernels as at
from strom.kv.rows.base_layout import BLOCK_ROWS
from strom.kv.rows.live_bits import bits_of, count, live_of, new_bits
from strom.kv.rows.tail_positions import PositionsView

FIRST_ROWS = 1024
FIRST_DATA_BYTES = 16 * 1024
NOT_YET = np.iinfo(np.int64).max
"""The offset of a row not written yet: larger than any other, so that a search stops before it."""


class TailView(NamedTuple):
    """A block as readers see it."""

    source: ColumnSource
    offsets: Int64s
    """Ascending, then ``NOT_YET``."""
    tombstones: Bools
    live: Octets
    live_address: int


class _Pieces:
    """A nested column of a block: a few arrays, larger ones first. The tuple is replaced, never changed."""

    __slots__ = ("_pieces",)

    def __init__(self, pieces: Sequence[tuple[int, pa.Array]] = ()) -> None:
        self._pieces = tuple(pieces)

    def pieces(self) -> Sequence[tuple[int, pa.Array]]:
        return self._pieces

    def append(self, start: int, array: pa.Array) -> None:
        pieces = list(self._pieces)
        while pieces and len(pieces[-1][1]) <= 2 * len(array):
            start, before = pieces.pop()
            array = pa.concat_arrays([before, array])
        self._pieces = (*pieces, (start, array))

    def first(self, rows: int) -> _Pieces:
        return _Pieces([(start, array[: rows - start]) for start, array in self._pieces if start < rows])


class TailBlock:
    """Rows of one schema, at most 64 Ki."""

    def __init__(self, layout: RowLayout, before: Sequence[int] | None = None) -> None:
        """``before``: ``data_sizes`` of a full block. This one will likely get as large, and starts at that size."""
        columns = len(layout.kinds)
        self.layout = layout
        self.count = 0
        self._bound = 0  # offsets are below
        self._room = FIRST_ROWS if before is None else BLOCK_ROWS
        self._arrays = [[np.zeros(0, np.uint8)] * 3 for _ in range(columns)]
        self._table = np.zeros((columns, at.COLUMN_FIELDS), np.int64)
        self._nested = {column: _Pieces() for column in layout.everything.nested}
        self._set_rows(np.full(self._room, NOT_YET, np.int64), np.zeros(self._room, np.bool_))
        self._set_live(new_bits())
        for column in layout.everything.var:
            self._replace(column, at.DATA, FIRST_DATA_BYTES if before is None else before[column])
        for column in range(columns):
            self._allocate(column, self._room)
        self.view = self._viewed()

    def _set_rows(self, offsets: Int64s, tombstones: Bools) -> None:
        self._offsets, self._tombstones = offsets, tombstones
        self._places = offsets.ctypes.data, tombstones.ctypes.data

    def _set_live(self, bits: Octets) -> None:
        self.live, self._live_address = bits, bits.ctypes.data

    @property
    def bytes(self) -> int:
        """Memory taken, nested columns not counted."""
        return sum(len(array) for arrays in self._arrays for array in arrays) + 9 * self._room

    def data_sizes(self) -> tuple[int, ...]:
        """Bytes allocated for variable data, per column."""
        return tuple(len(arrays[at.DATA]) for arrays in self._arrays)

    def is_below(self, offset: int) -> bool:
        """Whether all rows have offsets below this one. Usually without reading them: they may be cold."""
        return self._bound <= offset or self.rows_below(offset) == self.count

    def rows_below(self, offset: int) -> int:
        """The number of rows with offsets below this one, which are the first rows."""
        return int(np.searchsorted(self._offsets[: self.count], offset))

    def _sizes(self, column: int, rows: int) -> tuple[int, int]:
        """Bytes of validity and values (or offsets) for this many rows."""
        form, width, _ = self.layout.kinds[column]
        if form == "nested":
            return 0, 0
        bitmap = rows // 8
        return bitmap, {"fixed": rows * width, "bits": bitmap, "var": 4 * (rows + 1)}[form]

    def _allocate(self, column: int, rows: int) -> None:
        for which, size in enumerate(self._sizes(column, rows)):
            self._replace(column, which, size)

    def _replace(self, column: int, which: int, size: int) -> None:
        """Move to a larger array; the old one stays with its readers."""
        old = self._arrays[column][which]
        new = np.zeros(size, np.uint8)
        new[: len(old)] = old
        self._arrays[column] = [
            new if number == which else array for number, array in enumerate(self._arrays[column])
        ]
        self._table[column, which] = new.ctypes.data if size else 0
        if which == at.DATA:
            self._table[column, at.ALLOCATED] = size

    def _viewed(self) -> TailView:
        keep = (tuple(self._arrays), self._nested)
        addresses = self._table[:, :3].copy()
        # A column without NULLs has no bitmap for readers, which saves a memory access per value.
        addresses[self._table[:, at.NULLS] == 0, at.VALIDITY] = 0
        source = ColumnSource(self._room, addresses, keep, self._nested)
        return TailView(source, self._offsets, self._tombstones, self.live, self._live_address)

    def take_in(
        self,
        source: ColumnSource,
        stored: Bools,
        tombstone: Bools,
        rows: Int32s,
        begin: int,
        base_offset: int,
        data_max: int,
        number: int,
        positions: PositionsView,
        done: Int64s,
    ) -> int:
        """Add stored records from ``begin`` on. Fills ``done``: the number taken, and where the next ones begin.

        Record i is row ``rows[i]`` of the source, or row i if ``rows`` is empty. Returns CLOSE when the records belong
        in a new block, otherwise whether there is a new view.
        """
        everything, grown = self.layout.everything, False
        addresses = source.addresses[np.newaxis]
        while True:
            answer = at.take_in(
                addresses, everything.forms, everything.widths, stored, tombstone, rows, begin, base_offset,
                self.count, self._room, data_max, number, *self._places, positions.first, positions.addresses,
                self._table, done,
            )  # fmt: skip
            if answer != at.GROW:
                break
            self._grow(self.count + int(done[0]))
            grown = True
        if answer == at.CLOSE:
            return at.CLOSE
        taken, until = done.tolist()
        if self._nested and taken:
            picked: Int32s = (np.flatnonzero(stored[begin:until]) + begin).astype(np.int32)
            if len(rows):
                picked = rows[picked]
            for column, pieces in self._nested.items():
                pieces.append(self.count, _taken(source, column, picked, self.layout.kinds[column].type))
        self.count += taken
        self._bound = base_offset + until
        if grown or answer == at.TAKEN_WITH_NULLS:
            self.view = self._viewed()
            return 1
        return 0

    def _grow(self, rows: int) -> None:
        if rows > self._room:
            while self._room < rows:
                self._room *= 2
            for column in range(len(self.layout.kinds)):
                self._allocate(column, self._room)
            more = self._room - len(self._offsets)
            self._set_rows(
                np.append(self._offsets, np.full(more, NOT_YET, np.int64)),
                np.append(self._tombstones, np.zeros(more, np.bool_)),
            )
        for column in self.layout.everything.var:
            size, wanted = self._table[column, [at.ALLOCATED, at.WANTED]].tolist()
            if wanted > size:
                self._replace(column, at.DATA, max(2 * size, wanted))

    def first(self, rows: int) -> TailBlock:
        """A copy of the block with its first rows."""
        assert rows <= self.count <= BLOCK_ROWS
        made = TailBlock.__new__(TailBlock)
        made.layout, made.count, made._room, made._bound = self.layout, rows, self._room, self._bound
        made._arrays = [[array.copy() for array in arrays] for arrays in self._arrays]
        made._table = self._table.copy()
        for column, arrays in enumerate(made._arrays):
            made._table[column, :3] = [array.ctypes.data if len(array) else 0 for array in arrays]
        for column in self.layout.everything.var:
            made._table[column, at.USED] = made._arrays[column][1].view(np.int32)[rows]
        made._nested = {column: pieces.first(rows) for column, pieces in self._nested.items()}
        offsets = self._offsets.copy()
        offsets[rows:] = NOT_YET
        made._set_rows(offsets, self._tombstones.copy())
        made._set_live(bits_of(live_of(self.live, 0, rows)))
        made.view = made._viewed()
        return made

    def bury(self, rows: int) -> int:
        """Mark the first rows dead, because a base file has them now; returns how many were live.

        Older views keep their bits.
        """
        if not rows:
            return 0
        alive = live_of(self.live, 0, BLOCK_ROWS)
        alive[:rows] = False
        before = count(self.live)
        self._set_live(bits_of(alive))
        self.view = self.view._replace(live=self.live, live_address=self._live_address)
        return before - count(self.live)

    def widened(self, layout: RowLayout) -> None:
        """Take a newer schema: its additional columns are NULL in the rows already here."""
        old = len(self.layout.kinds)
        more = len(layout.kinds) - old
        assert layout.kinds[:old] == self.layout.kinds, "columns only come at the end"
        self.layout = layout
        self._arrays = [*self._arrays, *([np.zeros(0, np.uint8)] * 3 for _ in range(more))]
        self._table = np.concatenate([self._table, np.zeros((more, at.COLUMN_FIELDS), np.int64)])
        self._table[old:, at.NULLS] = 1
        nested = dict(self._nested)
        for column in range(old, old + more):
            self._allocate(column, self._room)
            form = layout.kinds[column].form
            if form == "var":
                self._replace(column, at.DATA, FIRST_DATA_BYTES)
            if form == "nested":
                filled = [(0, pa.nulls(self.count, layout.kinds[column].type))] if self.count else []
                nested[column] = _Pieces(filled)
        self._nested = nested
        self.view = self._viewed()


def _taken(source: ColumnSource, column: int, rows: Int32s, kind: pa.DataType) -> pa.Array:
    if source.addresses[column, 1] == ABSENT:
        return pa.nulls(len(rows), kind)
    ((_, array),) = source.nested[column].pieces()
    return array.take(pa.array(rows))
