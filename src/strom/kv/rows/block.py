"""A run of stored rows, as scans and carries read them: offsets, tombstones, live bits, columns without a copy."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strom.kv.arrays import Bools, Int64s, Octets
from strom.kv.gather.column_source import ABSENT, ColumnKind, ColumnSource, NestedColumn
from strom.kv.gather.directory import Directory
from strom.kv.gather.row_layout import Selection
from strom.kv.rows.base_file import BaseFile
from strom.kv.rows.tail_block import TailView

NO_OFFSETS: Int64s = np.empty(0, np.int64)


class Block:
    """Some stored rows, ascending by offset. Everything but the live bits is computed on demand."""

    __slots__ = ("_held", "_last", "_offsets", "directory", "end", "first", "live", "number", "selection")

    def __init__(
        self,
        held: Held,
        run: Run,
        live: Bools,
        end: int,
        *,
        directory: Directory,
        number: int,
        selection: Selection,
    ) -> None:
        self._held = held
        self.first, self._last, self._offsets = run
        self.live = live
        """As of when the block was taken."""
        self.end = end
        """Where to continue: no row lies between the last one and here."""
        self.directory, self.number = directory, number
        """The block is the rows from ``first`` on of this source."""
        self.selection = selection
        """The requested columns, which were checked."""

    @property
    def batch(self) -> pa.RecordBatch:
        """The requested columns, without a copy."""
        batch = batch_of(self.directory.sources[self.number], self._last, self.selection)
        return batch.slice(self.first) if self.first else batch

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._last - self.first

    @property
    def offsets(self) -> Int64s:
        """The offset of each row."""
        if self._offsets is None:
            assert isinstance(self._held, FileBlock)
            self._offsets = self._held.file.offsets(self._held.block)
        return self._offsets

    @property
    def size(self) -> int:
        """Bytes of the requested columns, dead rows included."""
        width = self.selection.width
        return int(self.batch.nbytes) if width is None else width * self.rows

    def rows_within(self, size: int) -> int:
        """The number of leading rows that fit into this many bytes."""
        batch = self.batch
        return bisect_right(range(1, self.rows + 1), size, key=lambda count: batch.slice(0, count).nbytes)

    def head(self, rows: int) -> Block:
        """The first rows of the block."""
        if rows == self.rows:
            return self
        offsets = self.offsets
        return Block(
            self._held,
            Run(self.first, self.first + rows, offsets[:rows]),
            self.live[:rows],
            int(offsets[rows]),
            directory=self.directory,
            number=self.number,
            selection=self.selection,
        )

    @property
    def tombstone(self) -> Bools:
        """Which rows are tombstones."""
        return tombstones_of(self._held, self.first, self._last)


class FileBlock(NamedTuple):
    """A block of a base file, with its live bits."""

    file: BaseFile
    block: int
    source: ColumnSource
    live: Octets


Held = FileBlock | TailView


class Run(NamedTuple):
    """Some rows of a source: [first, last)."""

    first: int
    last: int
    offsets: Int64s | None
    """None for all rows of a file's block, which knows them."""


def run_of(held: Held, start: int, until: int) -> Run:
    """The rows with offsets in [start, until)."""
    if isinstance(held, FileBlock):
        file, block = held.file, held.block
        begin, end = file.first_offset(block), file.first_offset(block + 1)
        if begin >= until or end <= start:
            return Run(0, 0, None)
        if begin >= start and end <= until:
            return Run(0, file.rows_of(block), None)
        offsets = file.offsets(block)
    else:
        offsets = held.offsets
    first, last = np.searchsorted(offsets, (start, max(start, until))).tolist()
    return Run(first, last, offsets[first:last])


def end_of(held: Held, run: Run, until: int) -> int:
    """Where the next rows may be, after a block's rows below ``until``."""
    if isinstance(held, FileBlock):
        return min(until, held.file.first_offset(held.block + 1))
    assert run.offsets is not None
    return int(run.offsets[-1]) + 1


def offsets_of(held: Held, start: int, until: int) -> tuple[int, Int64s]:
    """The offsets in [start, until), and the row of the first."""
    first, last, offsets = run_of(held, start, until)
    if offsets is None:
        offsets = held.file.offsets(held.block) if last and isinstance(held, FileBlock) else NO_OFFSETS
    return first, offsets


def tombstones_of(held: Held, first: int, last: int) -> Bools:
    """Which of these rows are tombstones."""
    if isinstance(held, FileBlock):
        return held.file.tombstones(held.block)[first:last]
    return held.tombstones[first:last].copy()


def batch_of(source: ColumnSource, rows: int, selection: Selection) -> pa.RecordBatch:
    """The first rows of a checked source, in place."""
    arrays = []
    for column, kind in zip(selection.positions, selection.kinds, strict=True):
        nested = source.nested.get(column)
        if source.addresses[column, 1] == ABSENT:
            arrays.append(pa.nulls(rows, kind.type))
        elif nested is not None:
            arrays.append(_joined(nested, rows))
        else:
            arrays.append(_array(source, column, rows, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=selection.schema)


def _joined(nested: NestedColumn, rows: int) -> pa.Array:
    pieces = nested.pieces()
    array = pieces[0][1] if len(pieces) == 1 else pa.concat_arrays([array for _, array in pieces])
    return array[:rows]


def _array(source: ColumnSource, column: int, rows: int, kind: ColumnKind) -> pa.Array:
    validity, values, data = source.addresses[column].tolist()
    sizes = {"fixed": rows * kind.width, "var": 4 * (rows + 1)}
    buffers = [
        _bitmap(validity, rows, source) if validity else None,
        _bitmap(values, rows, source)
        if kind.form == "bits"
        else pa.foreign_buffer(values, sizes[kind.form], source),
    ]
    if kind.form == "var":
        end = int(np.frombuffer(buffers[1], np.int32, 1, 4 * rows)[0])
        buffers.append(pa.foreign_buffer(data, end, source) if end else pa.py_buffer(b""))
    return pa.Array.from_buffers(kind.type, rows, buffers)


def _bitmap(address: int, rows: int, source: ColumnSource) -> pa.Buffer:
    """Bits in place, or a copy if later rows share the last octet: it might change after the checksum was taken."""
    found = pa.foreign_buffer(address, (rows + 7) >> 3, source)
    return pa.py_buffer(found.to_pybytes()) if rows & 7 else found
