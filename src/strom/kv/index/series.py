"""The series of replaced versions: for every record of the changelog, its key's version before it.

It gives the state at any offset the series covers (``step_back``), the images that died in a range of offsets
(``replaced``), and what is needed to undo records. Stepping back passes through tombstones; only images live or die.

A cell per offset: the previous version + 1, 0 = none (the key's first record, a -U, a batch without effect). Cells lie
in runs without gaps between them. Older runs are arrays with another owner (mapped files, see ``map``); newer ones are
reserved memory, which costs nothing where all cells are 0 (keys that are only inserted).

One thread changes a series, under the tablet's lock. :meth:`Series.snapshot` gives an immutable view that needs no
lock: only ``cut`` changes what it covers, and cuts happen above the high watermark, where no reader looks.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from strom.errors import StoreCorrupt
from strom.kv.arrays import Int64s
from strom.kv.index import series_kernels as kernels
from strom.kv.kernels.reserved_memory import address_of, reserve

PIECE_CELLS: Final = 1 << 18


class CellRun(NamedTuple):
    """The cells of [low, high), from ``address`` on."""

    low: int
    high: int
    address: int
    owner: object
    mapped: bool


class Frame(NamedTuple):
    """The pieces, and as kernels see them. The last one may reach beyond the series' end."""

    pieces: tuple[CellRun, ...]
    lows: Int64s
    addresses: Int64s


class SeriesView:
    """A series as it was when the view was taken. Safe in any thread."""

    def __init__(self, start: int, end: int, frame: Frame) -> None:
        self.start = start
        """Records from here on are known."""
        self.end = end
        self._pieces, self._bounds, self._addresses = frame

    def previous(self, offsets: Int64s) -> Int64s:
        """The version of the key before each record, or NONE."""
        offsets = np.ascontiguousarray(offsets, np.int64)
        out = np.empty(len(offsets), np.int64)
        if not kernels.load_all(offsets, self.start, self.end, self._bounds, self._addresses, out):
            raise ValueError(f"an offset outside the series [{self.start}, {self.end})")
        return out

    def step_back(self, versions: Int64s, below: int) -> Int64s:
        """Each version, or the newest one before it whose record is below ``below``; NONE when there is none."""
        out = np.array(versions, np.int64)
        fault = kernels.step_back(out, below, self.start, self.end, self._bounds, self._addresses)
        if fault == kernels.OUTSIDE:
            raise ValueError(f"stepping back to {below} leaves the series [{self.start}, {self.end})")
        if fault == kernels.FORWARD:
            raise StoreCorrupt("the series of replaced versions leads forward")
        return out

    def replaced(self, low: int, high: int, *, below: int) -> Int64s:
        """The offsets of images below ``below`` that were replaced by records in [low, high), ascending."""
        self._check(low, high)
        parts = []
        for piece, first, last in self._within(low, high):
            cells = piece.address + (first - piece.low) * 8
            out = np.empty(kernels.count_replaced(cells, last - first, below), np.int64)
            kernels.take_replaced(cells, last - first, below, out)
            parts.append(out)
        found = np.concatenate(parts) if parts else np.empty(0, np.int64)
        found.sort()
        return found

    def export(self, low: int, high: int) -> Int64s:
        """A copy of the cells of [low, high): what a chunk file holds, and ``map`` takes."""
        self._check(low, high)
        out = np.empty(high - low, np.int64)
        for piece, first, last in self._within(low, high):
            kernels.copy(piece.address + (first - piece.low) * 8, out[first - low : last - low])
        return out

    def _within(self, low: int, high: int) -> list[tuple[CellRun, int, int]]:
        return [
            (piece, max(low, piece.low), min(high, piece.high))
            for piece in self._pieces
            if piece.low < high and low < piece.high
        ]

    def _check(self, low: int, high: int) -> None:
        if not self.start <= low <= high <= self.end:
            raise ValueError(f"[{low}, {high}) leaves the series [{self.start}, {self.end})")


class Series:
    """Replaced versions of [start, end), growing at the end."""

    def __init__(self, start: int = 0) -> None:
        self._start = self._end = start
        self._pieces: list[CellRun] = []
        self._frame: Frame | None = None

    @property
    def start(self) -> int:
        """Records from here on are known."""
        return self._start

    @property
    def end(self) -> int:
        """The next offset to append."""
        return self._end

    @property
    def memory_bytes(self) -> int:
        """Memory reserved for what is not mapped: at most this much is in use."""
        return sum((piece.high - piece.low) * 8 for piece in self._pieces if not piece.mapped)

    # -- changing -------------------------------------------------------------------------------------------------
    def append(self, base_offset: int, count: int, offsets: Int64s, previous: Int64s) -> None:
        """Append records [base_offset, base_offset + count); those at ``offsets`` replaced ``previous``, or NONE."""
        if base_offset != self._end or count < 0 or len(offsets) != len(previous):
            raise ValueError(f"{count} records at {base_offset} do not follow {self._end}")
        offsets = np.ascontiguousarray(offsets, np.int64)
        previous = np.ascontiguousarray(previous, np.int64)
        end = base_offset + count
        if not kernels.sound(offsets, previous, base_offset, end):
            raise ValueError("an offset outside its batch, or a previous version that is not older")
        while not self._pieces or self._pieces[-1].high < end:
            self._add_piece()
        for piece in reversed(self._pieces):
            kernels.store_all(offsets, previous, piece.low, piece.high, piece.address)
            if piece.low <= base_offset:
                break
        self._end = end

    def cut(self, end: int) -> None:
        """Forget the records from ``end`` on."""
        if not self._start <= end <= self._end:
            raise ValueError(f"cannot cut [{self._start}, {self._end}) at {end}")
        while self._pieces and self._pieces[-1].low >= end:
            self._pieces.pop()
        if self._pieces:
            last = self._pieces[-1]
            if last.mapped:  # read-only: the rest of it stays mapped, and reserved memory begins here
                self._pieces[-1] = last._replace(high=min(last.high, end))
            else:
                kernels.clear(last.address + (end - last.low) * 8, min(self._end, last.high) - end)
        self._end, self._frame = end, None

    def trim(self, start: int) -> None:
        """Forget records below ``start``; memory is freed where whole runs lie below."""
        if start > self._end:
            raise ValueError(f"cannot trim [{self._start}, {self._end}) at {start}")
        self._start = max(self._start, start)
        while self._pieces and self._pieces[0].high <= self._start:
            self._pieces.pop(0)
        self._frame = None

    def map(self, low: int, high: int, cells: Int64s) -> None:
        """Use these cells for [low, high) from now on, and free the memory. They must be what ``export`` gave.

        An empty series takes in a snapshot this way, piece by piece, each at its end.
        """
        if cells.dtype != np.int64 or not cells.flags.c_contiguous or len(cells) != high - low:
            raise StoreCorrupt(f"the series of [{low}, {high}) has another length or type")
        following = low == self._end
        if not following and not self._start <= low <= high <= self._end:
            raise ValueError(f"[{low}, {high}) leaves the series [{self._start}, {self._end})")
        if low == high:
            return
        piece = CellRun(low, high, address_of(cells), cells, True)
        if following:
            if self._pieces:
                self._pieces[-1] = self._pieces[-1]._replace(high=low)
            self._end = high
        kept = []
        for old in self._pieces:
            if old.low < low:
                kept.append(old._replace(high=min(old.high, low)))
            if old.high > high:
                cut = max(old.low, high)
                kept.append(old._replace(low=cut, address=old.address + (cut - old.low) * 8))
        self._pieces = sorted([*kept, piece], key=lambda piece: piece.low)
        self._frame = None

    def _add_piece(self) -> None:
        low = self._pieces[-1].high if self._pieces else self._end
        memory = reserve(PIECE_CELLS * 8)
        self._pieces.append(CellRun(low, low + PIECE_CELLS, address_of(memory), memory, False))
        self._frame = None

    # -- reading ---------------------------------------------------------------------------------------------------
    def snapshot(self) -> SeriesView:
        """The current series, for a reader without the lock."""
        return SeriesView(self._start, self._end, self.frame)

    @property
    def frame(self) -> Frame:
        """The pieces there are now."""
        if self._frame is None:
            lows, addresses = ([piece[field] for piece in self._pieces] for field in (0, 2))
            self._frame = Frame(tuple(self._pieces), np.array(lows, np.int64), np.array(addresses, np.int64))
        return self._frame
