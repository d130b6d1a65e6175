"""The state of one primary-key bucket: every key's newest record, the records before it, the rows, the lists.

Invariants
    1. What is below ``published`` is in all of them; what is above is in none.
    2. The index holds each key's newest *record*, tombstones too; the series, per record, the one before it.
    3. A row's live bit is set exactly when its record is its key's newest and an image.
    4. ``undo`` covers every batch that ends above the high watermark it was last trimmed to.

Only the lane calls the methods that change the state. They take the lock, and so do readers in other threads
(``lookup/many_rows.py``); the lane itself reads without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import numpy as np
import pyarrow as pa

from strom.kv import publication_kernels as kernels
from strom.kv.arrays import Bools, Hashes, Int32s, Int64s, Octets
from strom.kv.changelog.batch_keys import find_batch_keys
from strom.kv.definition import KeyDefinition
from strom.kv.gather.column_source import ColumnSource, kinds_of, source_of
from strom.kv.gather.directory import Directory
from strom.kv.gather.gather import rows_equal
from strom.kv.gather.row_layout import RowLayout
from strom.kv.index.hashing import Hasher
from strom.kv.index.index import KeyIndex
from strom.kv.index.secondary_index import SecondaryIndex
from strom.kv.index.series import Series
from strom.kv.publication import BatchUndo, KeyGroups, Publication, Records, records_from_groups, stored_of
from strom.kv.rows.rows import Rows
from strom.kv.rows.tail import NO_ROWS
from strom.kv.runs.run_reads import RunReads
from strom.kv.runs.run_tiles import FoundVersions, RunTiles
from strom.kv.versions import NONE, are_images, offsets_of
from strom.record.layout import CHANGE_DELETE

_NO_RECORDS = np.zeros(0, np.int64)
_NO_FLAGS = np.zeros(0, np.bool_)

Same = Callable[[Int64s, Int64s], Bools]
T = TypeVar("T")
Wanted = tuple[RunTiles, Hashes]
"""Where to read, and what."""
FromRuns = tuple[RunTiles, Hashes, FoundVersions]
"""What was read."""


class _Touched:
    """The keys and records that one batch changes."""

    __slots__ = (
        "after",
        "before",
        "dead",
        "earlier",
        "hashes",
        "live",
        "new",
        "offsets",
        "places",
        "row_ids",
    )

    def __init__(self, groups: KeyGroups, records: Records, base_offset: int) -> None:
        keys = np.empty((kernels.KEY_FIELDS, len(groups.hashes)), np.int64)
        hashes, counts = np.empty(len(groups.hashes), np.uint64), np.empty(kernels.COUNTS, np.int64)
        earlier = np.empty((2, len(records.stored)), np.int64)
        kernels.prepare(
            *records,
            groups.versions,
            groups.hashes,
            groups.row_ids,
            base_offset,
            keys,
            hashes,
            earlier,
            counts,
        )
        count, self.new, dead, live, stored = counts.tolist()
        self.row_ids, self.before, self.after, self.places = keys[: kernels.DEAD, :count]
        self.hashes = hashes[:count]
        self.dead, self.live = keys[kernels.DEAD, :dead], keys[kernels.LIVE, :live]
        self.offsets, self.earlier = earlier[:, :stored]


class KeyStore:
    """Index, series, rows and lists of one bucket."""

    def __init__(
        self,
        definition: KeyDefinition,
        lock: AbstractContextManager[object],
        *,
        rows: Rows,
        index: KeyIndex,
        series: Series,
        published: int,
        reads: RunReads | None = None,
    ) -> None:
        self.lock = lock
        self.reads = reads or RunReads()
        """How the runs of the index are read."""
        self.rows = rows
        self.index = index
        self.series = series
        self.published = published
        """Every reader's bound: index, series, rows and lists hold everything below and nothing above."""
        self.cuts = 0
        """The number of truncations: what was read before the last one may have been undone."""
        self.undo: deque[BatchUndo] = deque()
        self._undo_start = published
        self.lists: dict[str, SecondaryIndex] = {}
        """Includes lists that are still being built: publishing maintains them all."""
        self.key_layout = RowLayout(pa.schema([definition.arrow.field(p) for p in definition.key]))
        self._key_columns = tuple(range(len(definition.key)))
        self._key_positions = np.array(definition.key, np.int64)
        self.key_spec = np.array(
            [definition.key, *zip(*((kind.code, kind.width) for kind in self.key_layout.kinds), strict=True)],
            np.int64,
        )
        self.hasher = Hasher(self.key_layout.kinds, self._key_columns)
        self._know(definition)

    def _know(self, definition: KeyDefinition) -> None:
        self.definition = definition
        self.kinds = kinds_of(definition.arrow)
        self._nothing = pa.RecordBatch.from_pylist([], schema=definition.arrow)

    # --- keys ----------------------------------------------------------------------------------------------

    def key_source(self, rows: pa.RecordBatch) -> ColumnSource:
        """The key columns of rows of the whole table."""
        return source_of(rows, self.key_layout.kinds, self.definition.key)

    def key_part(self, rows: ColumnSource) -> ColumnSource:
        """The key columns of a source with all columns."""
        return ColumnSource(rows.rows, rows.addresses[self._key_positions], rows.keep)

    def keys_of(self, rows: ColumnSource, *, placed: bool) -> tuple[KeyGroups, Int32s, Int32s]:
        """The distinct keys among rows with all columns, and where their newest records lie (source -1: none).

        Without ``placed`` the places are not filled in. In the lane.
        """
        keys = self.key_part(rows)
        hashes = self.hasher.hash(keys)
        self.index.uses += len(hashes)

        def find() -> tuple[KeyGroups, Int32s, Int32s]:
            stored = self.rows.directory
            found = find_batch_keys(
                keys, hashes, self.index, stored, self.key_spec, exact=self.hasher.bijective, placed=placed
            )
            if found is not None:
                return KeyGroups(*found[:5]), found.source, found.row
            groups = self._groups_of(keys, hashes)
            return groups, *self.rows.locate(offsets_of(groups.versions), stored)

        if self.index.resident is None:
            return find()
        return self.with_keys(hashes, lambda: self._held(*find()))

    def groups_of(self, keys: ColumnSource, hashes: Hashes) -> KeyGroups:
        """The distinct keys among rows, and what the store knows about them, step by step. In the lane."""
        if self.index.resident is None:
            return self._groups_of(keys, hashes)
        nowhere = np.empty(0, np.int32)
        return self.with_keys(hashes, lambda: self._held(self._groups_of(keys, hashes), nowhere, nowhere))[0]

    def _held(self, groups: KeyGroups, source: Int32s, row: Int32s) -> tuple[KeyGroups, Int32s, Int32s]:
        """What a writer found stays in memory until it is published."""
        if self.index.resident is not None:
            self.index.resident.hold(groups.row_ids)
        return groups, source, row

    def _groups_of(self, keys: ColumnSource, hashes: Hashes) -> KeyGroups:
        directory = None if self.hasher.bijective else Directory(self.key_layout, (keys,))
        order, starts = self.index.group(hashes, None if directory is None else self._same_within(directory))
        firsts = order[starts[:-1]]
        hashes = hashes[firsts]
        row_ids = self.index.find(hashes, None if directory is None else self._same(directory, firsts))
        return KeyGroups(order, starts, hashes, row_ids, self.index.newest(row_ids))

    def find_hashed(self, keys: ColumnSource, hashes: Hashes) -> Int64s:
        """The row ids of keys, -1 for unknown ones. Within ``with_keys``, or in the lane of an index in memory."""
        return self.index.find(hashes, None if self.hasher.bijective else self._same_keys(keys))

    def with_keys(self, hashes: Hashes, do: Callable[[], T]) -> T:
        """Call under the lock, while memory knows all about these hashes. Reads what it lacks before. Any thread."""
        read: list[FromRuns] = []
        while True:
            with self.lock:
                wanted = self.wanted(hashes, read)
                if wanted is None:
                    return do()
            read.append(self.read_runs(wanted))

    def wanted(self, hashes: Hashes, read: Sequence[FromRuns]) -> Wanted | None:
        """Take in what was read last, and say what has to be read before anything is asked. Under the lock."""
        index = self.index
        if read:
            index.admit(*read[-1], again=len(read) > 1)
        lacking = index.wanted(hashes)
        return None if lacking is None or index.resident is None else (index.resident.tiles, lacking)

    @staticmethod
    def read_runs(wanted: Wanted) -> FromRuns:
        """Read what is wanted. Any thread, without the lock."""
        tiles, hashes = wanted
        return tiles, hashes, tiles.find(hashes)

    def bring_in(self, wanted: Wanted) -> None:
        """Read keys into memory. Any thread, without the lock."""
        read = self.read_runs(wanted)
        with self.lock:
            self.index.admit(*read)

    def bring_all_in(self) -> None:
        """From now on all of the index is in memory: lists of rows need row ids that stay. In the lane."""
        if (resident := self.index.resident) is not None:
            for number in range(len(resident.tiles.tiles)):
                entries = resident.tiles.merged_tile(number)
                with self.lock:
                    self.index.take_tile(*entries)
            with self.lock:
                self.index.move_in()

    def renumber(self, old: Int64s, new: Int64s) -> None:
        """Keys in memory have other row ids; ``old`` rises. Under the lock."""
        for done in self.undo:
            done.row_ids[:] = new[np.searchsorted(old, done.row_ids)]

    def _same_keys(self, keys: ColumnSource) -> Same:
        return self._same(Directory(self.key_layout, (keys,)), None)

    def _same(self, directory: Directory, firsts: Int64s | None) -> Same:
        """Compares requested keys with stored rows: every row id's newest record has its key columns."""
        stored = self.rows.directory

        def same(which: Int64s, row_ids: Int64s) -> Bools:
            source, row = self.rows.locate(offsets_of(self.index.newest(row_ids)), stored)
            asked = (which if firsts is None else firsts[which]).astype(np.int32)
            nowhere = np.zeros(len(asked), np.int32)
            return rows_equal(
                directory, nowhere, asked, stored, source, row, self._key_columns, self.definition.key
            )

        return same

    def _same_within(self, directory: Directory) -> Same:
        def same(left: Int64s, right: Int64s) -> Bools:
            nowhere = np.zeros(len(left), np.int32)
            columns = self._key_columns
            return rows_equal(
                directory,
                nowhere,
                left.astype(np.int32),
                directory,
                nowhere,
                right.astype(np.int32),
                columns,
                columns,
            )

        return same

    # --- publishing ----------------------------------------------------------------------------------------

    def publication_of(self, batch: pa.RecordBatch, kinds: Octets) -> Publication:
        """What a batch of the log does. For recovery, which knows nothing but the batch."""
        stored_at = np.flatnonzero(stored_of(kinds))
        whole = len(stored_at) == len(kinds)
        keys = self.key_source(batch if whole else batch.take(pa.array(stored_at)))
        groups = self.groups_of(keys, self.hasher.hash(keys))
        return Publication(groups, records_from_groups(kinds, stored_at, groups.order, groups.starts))

    def publish(
        self,
        batch: ColumnSource,
        publication: Publication,
        *,
        base_offset: int,
        images: ColumnSource | None = None,
        rows: Int32s = NO_ROWS,
    ) -> None:
        """Take in one changelog batch that is in the log at ``base_offset``.

        ``images`` also holds the rows of all stored records, at ``rows``, where they are mostly adjacent.
        """
        groups, records = publication
        touched = _Touched(groups, records, base_offset)
        end = base_offset + batch.rows
        moving = [
            (name, one, one.hash(batch)[touched.places], touched.after & 1 == 1)
            for name, one in self.lists.items()
        ]
        row_ids = touched.row_ids
        # Outside the lock: nobody reads rows whose offsets are not published, and earlier rows stay where they are.
        self.rows.take_in(
            batch if images is None else images,
            base_offset,
            stored=records.stored,
            tombstone=records.tombstone,
            end=end,
            rows=NO_ROWS if images is None else rows,
        )
        with self.lock:
            if touched.new:
                fresh = row_ids < 0
                row_ids[fresh] = self.index.insert(touched.hashes[fresh])
            self.index.set_newest(row_ids, touched.after, touched.hashes)
            self.series.append(base_offset, batch.rows, touched.offsets, touched.earlier)
            self.rows.exchange(touched.dead, touched.live)
            moved = {name: one.move(row_ids, tuples, alive) for name, one, tuples, alive in moving}
            self.undo.append(
                BatchUndo(base_offset, end, row_ids, touched.hashes, touched.before, touched.after, moved)
            )
            self.published = end
            self.index.make_room()

    def publish_nothing(self, base_offset: int) -> None:
        """Take in a batch without records, which takes one offset."""
        with self.lock:
            self.rows.add(
                self._nothing,
                base_offset=base_offset,
                stored=_NO_FLAGS,
                tombstone=_NO_FLAGS,
                next_offset=base_offset + 1,
            )
            self.series.append(base_offset, 1, _NO_RECORDS, _NO_RECORDS)
            self.published = base_offset + 1

    def restore_rows(
        self, batch: pa.RecordBatch, kinds: Octets, *, base_offset: int, column_ids: tuple[int, ...]
    ) -> None:
        """When opening: add rows below the manifest's offset that no base file holds; the index has them already."""
        self.rows.add(
            batch,
            base_offset=base_offset,
            stored=stored_of(kinds),
            tombstone=kinds == CHANGE_DELETE,
            next_offset=base_offset + max(batch.num_rows, 1),
            column_ids=column_ids,
        )

    # --- altering ------------------------------------------------------------------------------------------

    def redefine(self, definition: KeyDefinition) -> None:
        """Take a definition with more columns, or other lists. A new list is empty and not ready until it is built."""
        if definition.lists:
            self.bring_all_in()
        with self.lock:
            if definition.schema != self.definition.schema:
                self.rows.evolve(definition.schema)
            self._know(definition)
            wanted = definition.lists
            kept = {name: one for name, one in self.lists.items() if wanted.get(name) == one.columns}
            for name, columns in wanted.items():
                if name not in kept:
                    kept[name] = SecondaryIndex(name, self.kinds, columns)
            self.lists = kept

    def restart_list(self, name: str) -> None:
        """Empty a list. Under the lock."""
        if name in self.lists:
            self.lists[name] = SecondaryIndex(name, self.kinds, self.lists[name].columns)

    # --- undoing -------------------------------------------------------------------------------------------

    def forget_undo(self, high_watermark: int) -> None:
        """Drop the undo of batches below the high watermark: readers see them, so they will not be undone."""
        undo = self.undo
        if undo and undo[0].end_offset <= high_watermark:
            with self.lock:
                while undo and undo[0].end_offset <= high_watermark:
                    self._undo_start = undo.popleft().end_offset

    def can_cut(self, end: int) -> bool:
        """Whether every batch from ``end`` on can be undone."""
        return end >= self._undo_start

    def truncate(self, end: int) -> None:
        """Undo every batch from ``end`` on: afterwards the state is what it was then."""
        with self.lock:
            while self.undo and self.undo[-1].base_offset >= end:
                self._revert(self.undo.pop())
            self.rows.cut(end)
            self.series.cut(end)
            self.published = end
            self.cuts += 1

    def _revert(self, done: BatchUndo) -> None:
        for name, before in done.lists.items():
            if name in self.lists:
                self.lists[name].restore(done.row_ids, before)
        self.rows.set_dead(offsets_of(done.after[are_images(done.after)]))
        self.rows.set_live(offsets_of(done.before[are_images(done.before)]))
        new = done.before == NONE
        self.index.set_newest(done.row_ids[~new], done.before[~new], done.hashes[~new])
        if new.any():
            self.index.forget(done.row_ids[new], done.hashes[new])

    # --- reclaiming ----------------------------------------------------------------------------------------

    def reclaim(self, keys: ColumnSource, versions: Int64s) -> int:
        """Forget keys whose newest record is still this tombstone and free their row ids. In the lane."""
        hashes = self.hasher.hash(keys)

        def find() -> Int64s:
            row_ids = self.find_hashed(keys, hashes)
            if self.index.resident is not None:
                self.index.resident.hold(row_ids)
            return row_ids

        row_ids = find() if self.index.resident is None else self.with_keys(hashes, find)
        gone = (row_ids >= 0) & (self.index.newest(row_ids) == versions)
        if gone.any():
            with self.lock:
                for one in self.lists.values():
                    one.forget(row_ids[gone])
                self.index.forget(row_ids[gone], hashes[gone])
        return int(gone.sum())
