"""The stored rows of one bucket: base files below C, the tail above, a live bit for each.

Invariants
    1. Every stored record of [C, end) is in the tail; of those below C, the base files hold what was needed when they
       were written. Files do not overlap and ascend by offset.
    2. ``directory`` is immutable. Who took one may read, in any thread, the rows of the offsets that were known then,
       whatever is carried, merged, cut or added meanwhile.
    3. Live bits are those of the newest state, changed in place.

One hand changes it, under the tablet's lock. ``write_*`` run in any thread; ``adopt_*`` are quick.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strom.kv import live
from strom.kv.base_file import BaseFile
from strom.kv.block import Block, FileBlock, Held, batch_of, offsets_of, tombstones_of
from strom.kv.carrying import Kept, Needed, NewFile, build
from strom.kv.columns import ABSENT, Bools, Int32s, Int64s, Octets, Source, source_of
from strom.kv.directory import Directory
from strom.kv.layout import Layout
from strom.kv.locating import FILE_FIELDS, Places, found_at
from strom.kv.tail import Tail
from strom.kv.tail_block import TailView
from strom.model.schema import Schema
from strom.runtime.files import Files

__all__ = ["BaseFile", "Block", "FileFacts", "Needed", "NewFile", "Rows"]


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
        self, files: Files, schema: Schema, *, base_files: Sequence[BaseFile] = (), carried: int = 0
    ) -> None:
        ends = [0, *(file.end for file in base_files)]
        assert all(file.start >= end for file, end in zip(base_files, ends, strict=False))
        assert carried >= ends[-1]
        self._files = files
        self.schema = schema
        self._layout = Layout.of(schema.to_arrow())
        self.base_files = tuple(base_files)
        self._file_live = [[live.new_bits() for _ in range(file.blocks)] for file in base_files]
        self._tail = Tail(self._layout, carried)
        self.live_count = 0
        self._rebuild()

    # --- What is there

    @property
    def directory(self) -> Directory:
        """An immutable snapshot; take it under the lock, together with the offsets to be read."""
        return self._directory

    @property
    def carried(self) -> int:
        """C: base files cover what is below."""
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
    def tail_bytes(self) -> int:
        """Memory of the tail."""
        return self._tail.bytes

    @property
    def stored_rows(self) -> int:
        """Rows in files and in memory, dead ones too."""
        return sum(file.rows for file in self.base_files) + self._tail.rows

    def file_facts(self) -> list[FileFacts]:
        """About each base file."""
        return [
            FileFacts(file.path, file.start, file.end, file.rows, sum(map(live.count, bits)), file.bytes)
            for file, bits in zip(self.base_files, self._file_live, strict=True)
        ]

    def describe(self) -> dict[str, object]:
        """For people."""
        return {
            "carried": self.carried,
            "end": self.end,
            "live_rows": self.live_count,
            "stored_rows": self.stored_rows,
            "tail_rows": self.tail_rows,
            "tail_bytes": self.tail_bytes,
            "base_files": [facts._asdict() for facts in self.file_facts()],
        }

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
        """The records of one changelog batch; those with ``stored`` are kept, dead until ``set_live``.

        ``next_offset``: for a batch that changes nothing and still takes an offset. ``column_ids``: of the batch's
        columns, when it was written under an older schema.
        """
        assert batch.num_rows == len(stored) == len(tombstone)
        positions = None if column_ids is None else self._positions(column_ids)
        source = source_of(batch, self._layout.kinds, positions)
        end = base_offset + batch.num_rows if next_offset is None else next_offset
        changed = self._tail.add(source, base_offset, stored, tombstone, end)
        if changed is not None:
            self._renew(changed)

    def _positions(self, column_ids: Sequence[int]) -> list[int]:
        by_id = {number: position for position, number in enumerate(column_ids)}
        return [by_id.get(column.id, ABSENT) for column in self.schema.columns]

    def cut(self, end: int) -> None:
        """Forget the records at and above ``end`` (never below ``carried``)."""
        self.live_count -= self._tail.cut(end)
        self._rebuild()

    def evolve(self, schema: Schema) -> None:
        """A newer schema: rows already held are NULL in the new columns."""
        self.schema = schema
        self._layout = Layout.of(schema.to_arrow())
        self._tail.widen(self._layout)
        self._rebuild()

    # --- Offsets

    def locate(self, offsets: Int64s, directory: Directory | None = None) -> tuple[Int32s, Int32s]:
        """(source, row) of each offset in this directory (the newest when None); source -1 when it is not held."""
        return found_at(offsets, _places(directory or self._directory))

    def set_live(self, offsets: Int64s) -> None:
        """These rows are their keys' newest images now."""
        places = _places(self._directory)
        self.live_count += live.mark(places.live, *found_at(offsets, places), 1)

    def set_dead(self, offsets: Int64s) -> None:
        """These rows no longer are. Offsets that are not held are passed over."""
        places = _places(self._directory)
        self.live_count -= live.mark(places.live, *found_at(offsets, places), 0)

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
        return build(
            self._files, path, places.schema, directory, tail, needed, start=places.tail_start, end=end
        )

    def adopt_carry(self, new: NewFile) -> BaseFile:
        """In the lane, under the lock: the file takes the place of the tail below its end."""
        assert new.file.start == self.carried, "one carry at a time"
        bits = [block.live for block in self._tail.blocks]
        self.base_files = (*self.base_files, new.file)
        self._file_live.append(_taken_over(bits, new))
        self._tail.drop(new.file.end)
        self._recount()
        return new.file

    def write_merge(
        self, path: str, first: int, last: int, needed: Needed, directory: Directory | None = None
    ) -> NewFile:
        """Any thread: the needed rows of base files [first, last) in one, from a directory taken under the lock."""
        directory = directory or self._directory
        places = _places(directory)
        merged = self.base_files[first:last]
        held = [
            (number, one)
            for number, one in enumerate(places.held)
            if isinstance(one, FileBlock) and one.file in merged
        ]
        start, end = merged[0].start, merged[-1].end
        return build(self._files, path, places.schema, directory, held, needed, start=start, end=end)

    def adopt_merge(self, first: int, last: int, new: NewFile) -> tuple[BaseFile, ...]:
        """In the lane, under the lock. The files that are no longer used: remove them when no manifest names them."""
        gone = self.base_files[first:last]
        assert (gone[0].start, gone[-1].end) == (new.file.start, new.file.end)
        bits = [one for of_file in self._file_live[first:last] for one in of_file]
        self.base_files = (*self.base_files[:first], new.file, *self.base_files[last:])
        self._file_live[first:last] = [_taken_over(bits, new)]
        self._recount()
        return gone

    def _recount(self) -> None:
        """After rows went: the live ones among them no longer count (a caller that needs them keeps them)."""
        self._rebuild()
        places = _places(self._directory)
        self.live_count = sum(live.count(held.live) for held in places.held)

    # --- The directory

    def _rebuild(self) -> None:
        """A directory from scratch."""
        ids, kinds = [column.id for column in self.schema.columns], self._layout.kinds
        held: list[Held] = [
            FileBlock(file, block, file.source(block, ids, kinds), bits[block])
            for file, bits in zip(self.base_files, self._file_live, strict=True)
            for block in range(file.blocks)
        ]
        self._directory = Directory(self._layout, [one.source for one in held])
        self._file_held, self._file_places = held, _file_places(self.base_files)
        self._file_bits = [one.live.ctypes.data for one in held]
        self._renew(0)

    def _renew(self, first: int) -> None:
        """A directory with new views of the tail's blocks from ``first`` on."""
        before = len(self._file_held)
        views = [self._widened(block.view) for block in self._tail.blocks]
        held = (*self._file_held, *views)
        places = Places(
            self._file_places,
            self._tail.start,
            before,
            self._tail.positions,
            held,
            np.array([*self._file_bits, *(view.live.ctypes.data for view in views)], np.int64),
            self.schema,
            self.base_files,
        )
        more = [view.source for view in views[first:]]
        self._directory = self._directory.replaced(before + first, more, places)

    def _widened(self, view: TailView) -> TailView:
        """A view as the newest schema sees it: columns it does not have are absent."""
        source = view.source
        missing = len(self._layout.kinds) - len(source.addresses)
        if not missing:
            return view
        absent = np.full((missing, 3), (0, ABSENT, 0), np.int64)
        wider = Source(source.rows, np.concatenate([source.addresses, absent]), source.keep, source.nested)
        return view._replace(source=wider)


def _places(directory: Directory) -> Places:
    places = directory.places
    assert isinstance(places, Places), "offsets are asked of a directory of arrival batches"
    return places


def _blocks(directory: Directory, start: int, until: int, columns: Sequence[int] | None) -> Iterator[Block]:
    selection = directory.layout.selection(columns)
    places = _places(directory)
    for number, held in enumerate(places.held):
        # The tail's first block may still hold rows that are in a file by now.
        low = max(start, places.tail_start) if number >= places.tail_source else start
        first, offsets = offsets_of(held, low, until)
        if not len(offsets):
            continue
        last = first + len(offsets)
        directory.check(np.array([number], np.int32), selection)
        batch = batch_of(directory.sources[number], last, selection)
        yield Block(
            offsets,
            live.live_of(held.live, first, last),
            tombstones_of(held, first, last),
            batch.slice(first) if first else batch,
        )


def _file_places(files: Sequence[BaseFile]) -> Int64s:
    found = np.zeros((len(files), FILE_FIELDS), np.int64)
    source = 0
    for number, file in enumerate(files):
        first, second = (part.ctypes.data for part in file.index)
        rows = file.block_rows.ctypes.data
        found[number] = (file.start, file.end, file.form, first, second, file.rows, source, rows, file.blocks)
        source += file.blocks
    return found


def _taken_over(bits: Sequence[Octets], new: NewFile) -> list[Octets]:
    """The live bits of a new file's blocks, from those of the rows it was made of, as they are now."""
    pairs: Iterator[tuple[Octets, Kept]] = zip(bits, new.kept, strict=False)
    parts = [live.live_of(one, kept.first, kept.first + len(kept.mask))[kept.mask] for one, kept in pairs]
    whole = np.concatenate([np.empty(0, np.bool_), *parts])
    rows = new.file.block_rows.tolist()
    return [live.bits_of(whole[rows[block] : rows[block + 1]]) for block in range(new.file.blocks)]
