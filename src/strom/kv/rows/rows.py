"""The stored rows of one bucket: base files below C, the tail above, a live bit for each.

Invariants
    1. Every stored record of [C, end) is in the tail; of those below C, the base files hold what was needed when they
       were written. Files do not overlap and ascend by offset.
    2. ``directory`` is immutable. Its holder may read, in any thread, the rows of the offsets known at that time,
       whatever is carried, merged, cut or added meanwhile.
    3. Live bits are those of the newest state, changed in place, and counted as they change.

One thread changes it, under the tablet's lock. ``write_*`` run in any thread, one at a time. ``adopt_*`` take the same
time for any number of rows: they swap in what was prepared, and replay the journal of rows that became live or dead.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strom.kv.arrays import Bools, Int32s, Int64s, Octets
from strom.kv.gather.column_source import ABSENT, ColumnSource, source_of
from strom.kv.gather.directory import Directory
from strom.kv.gather.row_layout import RowLayout
from strom.kv.index.index import IndexTables
from strom.kv.rows import live_bits
from strom.kv.rows.base_file import BaseFile
from strom.kv.rows.base_layout import BLOCK_DATA_BYTES
from strom.kv.rows.block import Block, FileBlock, Held, end_of, run_of
from strom.kv.rows.carrying import Needed, NewFile, build, taken_over
from strom.kv.rows.file_part import FilePart, part_of, places_of
from strom.kv.rows.row_places import FILE_FIELDS, Places, found_at
from strom.kv.rows.tail import NO_ROWS, RowTail
from strom.kv.rows.tail_block import TailView
from strom.model.schema import Schema
from strom.runtime.files import Files

__all__ = ["BaseFile", "Block", "FileFacts", "Needed", "NewFile", "Rows"]


KEPT_BYTES_MAX = 1024 * 1024
"""The most bytes of one write that may stay in memory until the next."""


class FileFacts(NamedTuple):
    """What decides whether a base file is worth a merge."""

    path: str
    start: int
    end: int
    rows: int
    live: int
    bytes: int


class Rows:
    """Base files, tail and live bits."""

    def __init__(
        self,
        files: Files,
        schema: Schema,
        *,
        base_files: Sequence[BaseFile] = (),
        carried: int = 0,
        block_data_bytes: int = BLOCK_DATA_BYTES,
    ) -> None:
        ends = [0, *(file.end for file in base_files)]
        assert all(file.start >= end for file, end in zip(base_files, ends, strict=False))
        assert carried >= ends[-1]
        self._files = files
        self.schema = schema
        self._layout = RowLayout.of(schema.to_arrow())
        self._parts = tuple(
            part_of(file, [live_bits.new_bits() for _ in range(file.blocks)], schema, self._layout)
            for file in base_files
        )
        self._block_data_bytes = block_data_bytes
        self._tail = RowTail(self._layout, carried, block_data_bytes)
        self._journal: Callable[[], live_bits.Journal | None] = _no_journal
        self.live_count = 0
        self._extended: Directory | None = None
        self._rebuild()

    # --- What is there

    @property
    def directory(self) -> Directory:
        """An immutable snapshot; take it under the lock, together with the offsets to read."""
        return self._directory

    @property
    def base_files(self) -> tuple[BaseFile, ...]:
        """Ascending by offset."""
        return tuple(part.file for part in self._parts)

    @property
    def carried(self) -> int:
        """C: base files cover everything below."""
        return self._tail.start

    @property
    def end(self) -> int:
        """The offset after the newest record."""
        return self._tail.end

    @property
    def tail_rows(self) -> int:
        """Rows in memory."""
        return self._tail.rows

    @property
    def stored_rows(self) -> int:
        """Rows in files and in memory, dead ones too."""
        return sum(part.file.rows for part in self._parts) + self._tail.rows

    def file_facts(self) -> list[FileFacts]:
        """About each base file."""
        return [
            FileFacts(file.path, file.start, file.end, file.rows, part.live_count, file.bytes)
            for part in self._parts
            for file in (part.file,)
        ]

    # --- The newest records

    def add(
        self,
        batch: pa.RecordBatch,
        *,
        base_offset: int,
        stored: Bools,
        tombstone: Bools,
        next_offset: int | None = None,
        column_ids: Sequence[int] | None = None,
    ) -> None:
        """Add one changelog batch; records with ``stored`` are kept, dead until ``set_live``.

        ``next_offset``: for a batch that changes nothing but takes an offset. ``column_ids``: of the batch's columns,
        when it was written under an older schema.
        """
        assert batch.num_rows == len(stored) == len(tombstone)
        end = base_offset + batch.num_rows if next_offset is None else next_offset
        self.take_in(
            self.source_of(batch, column_ids), base_offset, stored=stored, tombstone=tombstone, end=end
        )

    def source_of(self, batch: pa.RecordBatch, column_ids: Sequence[int] | None = None) -> ColumnSource:
        """A batch as the newest schema sees it. ``column_ids``: when it was written under an older one."""
        positions = None if column_ids is None else self._positions(column_ids)
        return source_of(batch, self._layout.kinds, positions)

    def take_in(
        self,
        source: ColumnSource,
        base_offset: int,
        *,
        stored: Bools,
        tombstone: Bools,
        end: int,
        rows: Int32s = NO_ROWS,
    ) -> None:
        """Like ``add``, from a source of the newest schema: record i is its row ``rows[i]``, or row i without them."""
        changed = self._tail.add(source, base_offset, stored, tombstone, end, rows)
        if changed is not None:
            self._renew(changed)

    def with_source(self, source: ColumnSource) -> Directory:
        """The newest directory with one more source at the end. Only for the lane, and valid until its next call.

        It is reused by the next call, unless that would keep large rows in memory.
        """
        if _is_large(source.keep):
            self._extended = None
            return self._directory.with_sources(source)
        made = self._extended
        if made is None or made.origin is not self._directory:
            made = self._extended = self._directory.with_sources(source)
        else:
            made.replace_last(source)
        return made

    def _positions(self, column_ids: Sequence[int]) -> list[int]:
        by_id = {number: position for position, number in enumerate(column_ids)}
        return [by_id.get(column.id, ABSENT) for column in self.schema.columns]

    def cut(self, end: int) -> None:
        """Forget the records at and above ``end`` (never below ``carried``)."""
        self.live_count -= self._tail.cut(end)
        self._renew(0)

    def evolve(self, schema: Schema) -> None:
        """A newer schema: rows already held are NULL in the new columns."""
        self.schema = schema
        self._layout = RowLayout.of(schema.to_arrow())
        self._parts = tuple(part.seen_by(schema, self._layout) for part in self._parts)
        self._tail.widen(self._layout)
        self._rebuild()

    # --- Offsets

    def locate(self, offsets: Int64s, directory: Directory | None = None) -> tuple[Int32s, Int32s]:
        """(source, row) of each offset in this directory (the newest when None); source -1 when it is not held."""
        return found_at(offsets, _places(directory or self._directory))

    def exchange(self, dead: Int64s, born: Int64s) -> None:
        """Make some rows dead and others live."""
        places = self._places
        first_chunk, chunks, _ = places.positions
        self.live_count += live_bits.exchange(
            dead, born, places.files, places.tail_start, places.tail_source, places.tail_block, first_chunk, chunks,
            places.live,
        )  # fmt: skip
        journal = self._journal()  # after the change: see ``live_bits``
        if journal is not None:
            journal.changes.append((dead.copy(), 0))
            journal.changes.append((born.copy(), 1))

    def set_live_newest(self, index: IndexTables) -> None:
        """When opening, with no row live yet: make the newest images of an index live."""
        places = self._places
        first_chunk, chunks, _ = places.positions
        self.live_count += live_bits.mark_newest(
            index.newest, index.size, places.files, places.tail_start, places.tail_source, places.tail_block,
            first_chunk, chunks, places.live,
        )  # fmt: skip

    def set_live(self, offsets: Int64s) -> None:
        """Make rows live: they are now their keys' newest images."""
        self._mark(offsets, 1)

    def set_dead(self, offsets: Int64s) -> None:
        """Make rows dead. Offsets that are not held are skipped."""
        self._mark(offsets, 0)

    def _mark(self, offsets: Int64s, alive: int) -> None:
        places = self._places
        changed = live_bits.mark(places.live, *found_at(offsets, places), alive)
        self.live_count += changed if alive else -changed
        journal = self._journal()  # after the change: see ``live_bits``
        if journal is not None:
            journal.changes.append((offsets.copy(), alive))

    def blocks(
        self,
        start: int,
        until: int,
        columns: Sequence[int] | None = None,
        directory: Directory | None = None,
    ) -> Iterator[Block]:
        """All stored rows with offsets in [start, until), ascending, as of now or of a directory taken before.

        The iterator may be used in any thread, whatever changes meanwhile.
        """
        return _blocks(directory or self._directory, start, until, columns)

    # --- Files

    def write_carry(self, path: str, end: int, needed: Needed, directory: Directory | None = None) -> NewFile:
        """Any thread: write the needed rows of the tail below ``end``, from a directory taken under the lock."""
        directory = directory or self._directory
        places = _places(directory)
        tail = list(enumerate(places.held))[places.tail_source :]
        start = places.tail_start

        def bits() -> list[Octets]:
            newest = self._places  # a truncation may have replaced the bits of the last block
            return [held.live for held in newest.held[newest.tail_source :]]

        return self._write(path, directory, tail, needed, start, end, bits)

    def _write(
        self,
        path: str,
        directory: Directory,
        held: Sequence[tuple[int, Held]],
        needed: Needed,
        start: int,
        end: int,
        bits: Callable[[], list[Octets]],
    ) -> NewFile:
        schema = _places(directory).schema
        limit = self._block_data_bytes
        file, kept = build(
            self._files, path, schema, directory, held, needed, start=start, end=end, data_max=limit
        )
        journal = live_bits.Journal()
        self._journal = weakref.ref(journal)
        schema, layout = self.schema, self._layout
        part = part_of(file, taken_over(bits(), kept, file), schema, layout)
        return NewFile(file, part, part.live_count, journal, directory)

    def adopt_carry(self, new: NewFile) -> BaseFile:
        """In the lane, under the lock: the file takes the place of the tail below its end."""
        assert new.file.start == self.carried, "one carry at a time"
        gone = self._tail.drop(new.file.end)
        self._adopt((*self._parts, self._newest(new)), new, gone)
        return new.file

    def write_merge(
        self, path: str, first: int, last: int, needed: Needed, directory: Directory | None = None
    ) -> NewFile:
        """Any thread: the needed rows of base files [first, last) in one, from a directory taken under the lock."""
        directory = directory or self._directory
        merged = self.base_files[first:last]
        held = [
            (number, one)
            for number, one in enumerate(_places(directory).held)
            if isinstance(one, FileBlock) and one.file in merged
        ]
        start, end = merged[0].start, merged[-1].end
        return self._write(path, directory, held, needed, start, end, lambda: [one.live for _, one in held])

    def adopt_merge(self, first: int, last: int, new: NewFile) -> tuple[BaseFile, ...]:
        """In the lane, under the lock. Returns the files no longer used, to remove when no manifest names them."""
        gone = self._parts[first:last]
        assert (gone[0].file.start, gone[-1].file.end) == (new.file.start, new.file.end)
        lost = sum(part.live_count for part in gone)
        self._adopt((*self._parts[:first], self._newest(new), *self._parts[last:]), new, lost)
        return tuple(part.file for part in gone)

    def _newest(self, new: NewFile) -> FilePart:
        """A new file as the newest schema sees it, which may be newer than it."""
        part = new.part
        return part if part.schema is self.schema else part.seen_by(self.schema, self._layout)

    def _adopt(self, parts: Sequence[FilePart], new: NewFile, gone: int) -> None:
        """Swap in a file. ``gone``: the live rows of what it replaces."""
        source = 0
        for part in self._parts:
            part.directory.learn(self._directory, source)
            source += part.file.blocks
        self._parts = tuple(parts)
        self.live_count += new.live - gone
        self._journal = _no_journal
        self._rebuild()
        for offsets, alive in new.journal.changes:
            self._mark(offsets, alive)

    # --- The directory

    def _rebuild(self) -> None:
        """Make the directory from scratch."""
        self._directory = Directory.joined(self._layout, [part.directory for part in self._parts])
        self._file_held: tuple[Held, ...] = tuple(one for part in self._parts for one in part.held)
        self._file_places = places_of(self._parts, FILE_FIELDS)
        self._file_bits = np.concatenate([np.empty(0, np.int64), *(part.live for part in self._parts)])
        self._renew(0)

    def _renew(self, first: int) -> None:
        """Make a directory with new views of the tail's blocks from ``first`` on."""
        before = len(self._file_held)
        views = [self._widened(block.view) for block in self._tail.blocks]
        held = (*self._file_held, *views)
        bits = np.array([view.live_address for view in views], np.int64)
        places = Places(
            self._file_places,
            self._tail.start,
            before,
            self._tail.first_block,
            self._tail.positions.view,
            held,
            np.concatenate([self._file_bits, bits]),
            self.schema,
        )
        more = [view.source for view in views[first:]]
        self._directory = self._directory.replaced(before + first, more, places)
        self._places = places

    def _widened(self, view: TailView) -> TailView:
        """A view as the newest schema sees it: columns it does not have are absent."""
        source = view.source
        missing = len(self._layout.kinds) - len(source.addresses)
        if not missing:
            return view
        absent = np.full((missing, 3), (0, ABSENT, 0), np.int64)
        wider = ColumnSource(
            source.rows, np.concatenate([source.addresses, absent]), source.keep, source.nested
        )
        return view._replace(source=wider)


def _is_large(keep: object) -> bool:
    return isinstance(keep, pa.RecordBatch) and keep.get_total_buffer_size() > KEPT_BYTES_MAX


def _places(directory: Directory) -> Places:
    places = directory.places
    assert isinstance(places, Places), "offsets are asked of a directory of arrival batches"
    return places


def _blocks(directory: Directory, start: int, until: int, columns: Sequence[int] | None) -> Iterator[Block]:
    selection = directory.layout.selection(columns)
    places = _places(directory)
    for number, held in enumerate(places.held):
        # The tail's first block may still hold rows that a file has by now.
        low = max(start, places.tail_start) if number >= places.tail_source else start
        run = run_of(held, low, until)
        first, last = run.first, run.last
        if first == last:
            continue
        directory.check(np.array([number], np.int32), selection)
        yield Block(
            held,
            run,
            live_bits.live_of(held.live, first, last),
            end_of(held, run, until),
            directory=directory,
            number=number,
            selection=selection,
        )


def _no_journal() -> None:
    return None
