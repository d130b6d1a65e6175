"""One block of the tail: rows in columns, in memory, growing at the end.

A row that was written never changes, and neither does the address of a column until it must grow: then the column moves
to a larger array, and whoever holds an older :class:`TailView` keeps the smaller one. So a view stays true for the rows
it was made for; those added later need the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strom.kv.base_layout import BLOCK_DATA_BYTES, BLOCK_ROWS
from strom.kv.columns import ABSENT, Bools, Int32s, Int64s, Octets, Source
from strom.kv.copy_kernels import copy_columns, copy_data, data_sizes
from strom.kv.layout import Layout
from strom.kv.live import bits_of, live_of, new_bits

FIRST_ROWS = 1024
FIRST_DATA_BYTES = 16 * 1024
NOT_YET = np.iinfo(np.int64).max
"""The offset of a row that is not there yet: larger than any, so that a search stops before it."""


class TailView(NamedTuple):
    """A block as it can be read from now on."""

    source: Source
    offsets: Int64s
    """Ascending, then ``NOT_YET``."""
    tombstones: Bools
    live: Octets


class _Pieces:
    """A nested column of a block: few arrays, the larger ones first. Its tuple is replaced, never changed."""

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

    def __init__(self, layout: Layout, before: TailBlock | None = None) -> None:
        """``before``: the block that is full; this one will likely be as large, and need not grow on the way."""
        self.layout = layout
        self.count = 0
        self.live = new_bits()
        self._room = FIRST_ROWS if before is None else BLOCK_ROWS
        columns = len(layout.kinds)
        self._arrays = [[np.zeros(0, np.uint8)] * 3 for _ in range(columns)]
        self._addresses = np.zeros((columns, 3), np.int64)
        self._data_used = np.zeros(columns, np.int64)
        self._nulls = np.zeros(columns, np.bool_)
        self._nested = {at: _Pieces() for at in layout.everything.nested}
        self._offsets = np.full(self._room, NOT_YET, np.int64)
        self._tombstones = np.zeros(self._room, np.bool_)
        if before is not None:
            for column in layout.everything.var:
                self._replace(column, 2, len(before._arrays[column][2]))
        for column in range(columns):
            self._allocate(column, self._room)
        self.view = self._viewed()

    @property
    def bytes(self) -> int:
        """Memory taken, nested columns not counted."""
        return sum(len(array) for arrays in self._arrays for array in arrays) + 9 * self._room

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
        if self.layout.kinds[column].form == "var" and not len(self._arrays[column][2]):
            self._replace(column, 2, FIRST_DATA_BYTES)

    def _replace(self, column: int, which: int, size: int) -> None:
        """A larger array with what the old one held; the old one belongs to those who read it."""
        old = self._arrays[column][which]
        new = np.zeros(size, np.uint8)
        new[: len(old)] = old
        self._arrays[column] = [
            new if at == which else array for at, array in enumerate(self._arrays[column])
        ]
        self._addresses[column, which] = new.ctypes.data if size else 0

    def _viewed(self) -> TailView:
        keep = (tuple(self._arrays), self._nested)
        addresses = self._addresses.copy()
        # A column without NULLs has no bitmap for readers: one memory access less for every value.
        addresses[~self._nulls, 0] = 0
        source = Source(self._room, addresses, keep, self._nested)
        return TailView(source, self._offsets, self._tombstones, self.live)

    def fits(self, addresses: Int64s, rows: Int32s) -> Int64s | None:
        """Bytes of variable data per column of these rows, or None when they belong in a new block."""
        everything = self.layout.everything
        sizes = np.zeros(len(everything.forms), np.int64)
        if everything.var:
            zeros = np.zeros(len(rows), np.int32)
            data_sizes(addresses, everything.columns, everything.forms, zeros, rows, sizes)
            if self.count and (self._data_used + sizes).max() > BLOCK_DATA_BYTES:
                return None
        return sizes

    def append(self, source: Source, rows: Int32s, offsets: Int64s, tombstone: Bools, sizes: Int64s) -> bool:
        """Add rows of a source (``sizes`` from ``fits``). True when a new view was made."""
        count, everything = len(rows), self.layout.everything
        grown = self._grow(self.count + count, self._data_used + sizes)
        zeros = np.zeros(count, np.int32)
        counts = np.zeros((len(everything.forms), 2), np.int64)
        places = (everything.columns, everything.forms)
        addresses = source.addresses[np.newaxis]
        to = np.ascontiguousarray(self._addresses[:, :2])
        copy_columns(addresses, *places, everything.widths, zeros, rows, to, 0, self.count, counts)
        nulls = self._nulls | (counts[:, 0] > 0)
        if (nulls != self._nulls).any():
            self._nulls, grown = nulls, True
        data = np.ascontiguousarray(self._addresses[:, 2])
        copy_data(addresses, *places, zeros, rows, to, 0, self.count, data, 0)
        for column, pieces in self._nested.items():
            pieces.append(self.count, _taken(source, column, rows, self.layout.kinds[column].type))
        self._data_used += sizes
        self._tombstones[self.count : self.count + count] = tombstone
        # Offsets last: a reader takes rows up to the first offset that is not there.
        self._offsets[self.count : self.count + count] = offsets
        self.count += count
        if grown:
            self.view = self._viewed()
        return grown

    def _grow(self, rows: int, data: Int64s) -> bool:
        grown = False
        if rows > self._room:
            while self._room < rows:
                self._room *= 2
            grown = True
            for column in range(len(self.layout.kinds)):
                self._allocate(column, self._room)
            self._offsets = np.append(
                self._offsets, np.full(self._room - len(self._offsets), NOT_YET, np.int64)
            )
            self._tombstones = np.append(
                self._tombstones, np.zeros(self._room - len(self._tombstones), np.bool_)
            )
        for column in self.layout.everything.var:
            size = len(self._arrays[column][2])
            if data[column] > size:
                self._replace(column, 2, max(2 * size, int(data[column])))
                grown = True
        return grown

    def first(self, rows: int) -> TailBlock:
        """A block of its own with the first rows of this one."""
        assert rows <= self.count <= BLOCK_ROWS
        made = TailBlock.__new__(TailBlock)
        made.layout, made.count, made._room = self.layout, rows, self._room
        made._arrays = [[array.copy() for array in arrays] for arrays in self._arrays]
        made._addresses = np.array(
            [[array.ctypes.data if len(array) else 0 for array in arrays] for arrays in made._arrays],
            np.int64,
        ).reshape(len(made._arrays), 3)
        made._data_used, made._nulls = np.zeros_like(self._data_used), self._nulls
        for column in self.layout.everything.var:
            made._data_used[column] = made._arrays[column][1].view(np.int32)[rows]
        made._nested = {column: pieces.first(rows) for column, pieces in self._nested.items()}
        made._offsets, made._tombstones = self._offsets.copy(), self._tombstones.copy()
        made._offsets[rows:] = NOT_YET
        made.live = bits_of(live_of(self.live, 0, rows))
        made.view = made._viewed()
        return made

    def bury(self, rows: int) -> None:
        """The first rows are in a base file now, and live there. Who holds an older view keeps its bits."""
        alive = live_of(self.live, 0, BLOCK_ROWS)
        alive[:rows] = False
        self.live = bits_of(alive)
        self.view = self.view._replace(live=self.live)

    def widened(self, layout: Layout) -> None:
        """A newer schema: columns more at the end, NULL in the rows already here."""
        old = len(self.layout.kinds)
        more = len(layout.kinds) - old
        assert layout.kinds[:old] == self.layout.kinds, "columns only come at the end"
        self.layout = layout
        self._arrays = [*self._arrays, *([np.zeros(0, np.uint8)] * 3 for _ in range(more))]
        self._addresses = np.concatenate([self._addresses, np.zeros((more, 3), np.int64)])
        self._data_used = np.append(self._data_used, np.zeros(more, np.int64))
        self._nulls = np.append(self._nulls, np.ones(more, np.bool_))
        nested = dict(self._nested)
        for column in range(old, old + more):
            self._allocate(column, self._room)
            if layout.kinds[column].form == "nested":
                filled = [(0, pa.nulls(self.count, layout.kinds[column].type))] if self.count else []
                nested[column] = _Pieces(filled)
        self._nested = nested
        self.view = self._viewed()


def _taken(source: Source, column: int, rows: Int32s, kind: pa.DataType) -> pa.Array:
    if source.addresses[column, 1] == ABSENT:
        return pa.nulls(len(rows), kind)
    ((_, array),) = source.nested[column].pieces()
    return array.take(pa.array(rows))
