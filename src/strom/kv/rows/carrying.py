"""Building a base file from existing blocks: the needed rows of the tail, or of several files.

Runs in any thread on an immutable directory, one block at a time, while writers go on. Live bits are not in the file:
they are taken over once it is written, by the masks kept here, and a journal records the changes from then until the
file is adopted (``Rows.adopt_*``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from strom.kv.arrays import Bools, Int32s, Int64s, Octets
from strom.kv.gather.copy_kernels import data_sizes
from strom.kv.gather.directory import Directory
from strom.kv.gather.gather import gather
from strom.kv.rows.base_file import BaseFile
from strom.kv.rows.base_layout import BLOCK_DATA_BYTES, BLOCK_ROWS
from strom.kv.rows.base_writer import BaseFileWriter
from strom.kv.rows.block import Held, offsets_of, tombstones_of
from strom.kv.rows.file_part import FilePart
from strom.kv.rows.live_bits import Journal, bits_of, live_of
from strom.model.schema import Schema
from strom.runtime.files import Files

Needed = Callable[[Int64s], Bools]


class CarriedRows(NamedTuple):
    """Which rows of an old block are in the new file: some of [first, first + len(mask))."""

    first: int
    mask: Bools


class NewFile(NamedTuple):
    """A base file that is written and synced but not yet read from.

    It keeps its origin alive, so that freeing that memory happens when it is dropped, not when it is adopted under a
    lock.
    """

    file: BaseFile
    part: FilePart
    live: int
    """Rows that are live, apart from the changes in the journal."""
    journal: Journal
    origin: Directory


class _Filling:
    """A block in the making: which rows will be in it."""

    def __init__(self, writer: BaseFileWriter, directory: Directory, data_max: int) -> None:
        self._writer, self._directory, self._data_max = writer, directory, data_max
        self._parts: list[tuple[Int32s, Int32s, Int64s, Bools]] = []
        self._rows = 0
        self._data = np.zeros(len(directory.kinds), np.int64)

    def add(self, source: int, rows: Int32s, offsets: Int64s, tombstone: Bools) -> None:
        while len(rows):
            room = BLOCK_ROWS - self._rows
            sources = np.full(min(room, len(rows)), source, np.int32)
            sizes = self._sizes(sources, rows[:room])
            if self._rows and (self._data + sizes).max(initial=0) > self._data_max:
                self.flush()
                continue
            self._data += sizes
            self._parts.append((sources, rows[:room], offsets[:room], tombstone[:room]))
            self._rows += len(sources)
            rows, offsets, tombstone = rows[room:], offsets[room:], tombstone[room:]
            if self._rows == BLOCK_ROWS:
                self.flush()

    def _sizes(self, sources: Int32s, rows: Int32s) -> Int64s:
        everything = self._directory.layout.everything
        sizes = np.zeros(len(everything.forms), np.int64)
        if everything.var:
            self._directory.check(sources[:1], everything)
            data_sizes(self._directory.addresses, everything.columns, everything.forms, sources, rows, sizes)
        return sizes

    def flush(self) -> None:
        if not self._parts:
            return
        sources, rows, offsets, tombstone = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        self._writer.append(gather(self._directory, sources, rows), offsets, tombstone)
        self._parts, self._rows = [], 0
        self._data[:] = 0


def build(
    files: Files,
    path: str,
    schema: Schema,
    directory: Directory,
    held: Sequence[tuple[int, Held]],
    needed: Needed,
    *,
    start: int,
    end: int,
    data_max: int = BLOCK_DATA_BYTES,
) -> tuple[BaseFile, list[CarriedRows]]:
    """Write the needed rows of these sources (by number, with their blocks) with offsets in [start, end)."""
    writer = BaseFileWriter(
        files,
        path,
        schema=directory.schema,
        schema_id=schema.schema_id,
        column_ids=[column.id for column in schema.columns],
        start=start,
        end=end,
    )
    kept: list[CarriedRows] = []
    try:
        filling = _Filling(writer, directory, data_max)
        for number, block in held:
            first, offsets = offsets_of(block, start, end)
            mask = needed(offsets) if len(offsets) else np.empty(0, np.bool_)
            kept.append(CarriedRows(first, mask))
            rows: Int32s = (np.flatnonzero(mask) + first).astype(np.int32)
            tombstone = tombstones_of(block, first, first + len(offsets))
            filling.add(number, rows, offsets[mask], tombstone[mask])
        filling.flush()
        writer.finish()
    except BaseException:
        writer.abandon()
        raise
    return BaseFile.open(files, path), kept


def append_rows(
    writer: BaseFileWriter, directory: Directory, offsets: Int64s, data_max: int = BLOCK_DATA_BYTES
) -> None:
    """Write all rows of a directory's only source, as live rows with these offsets, in as many blocks as they take."""
    filling = _Filling(writer, directory, data_max)
    filling.add(0, np.arange(len(offsets), dtype=np.int32), offsets, np.zeros(len(offsets), np.bool_))
    filling.flush()


def taken_over(bits: Sequence[Octets], kept: Sequence[CarriedRows], file: BaseFile) -> list[Octets]:
    """The live bits of a new file's blocks, from the current bits of the rows it was made of."""
    parts = [
        live_of(one, some.first, some.first + len(some.mask))[some.mask]
        for one, some in zip(bits, kept, strict=False)
    ]
    whole = np.concatenate([np.empty(0, np.bool_), *parts])
    rows = file.block_rows.tolist()
    return [bits_of(whole[rows[block] : rows[block + 1]]) for block in range(file.blocks)]
