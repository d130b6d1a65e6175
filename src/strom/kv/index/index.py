"""The index of a primary-key bucket: key hash -> row id -> version of the key's newest record, tombstones included.

Promises
    1. Keys are exact. Keys may share a hash: the caller's ``same`` compares columns, unless the hash is a bijection.
    2. Row ids are dense, stable while their key is known, and reused after ``forget``.
    3. Growth touches one shard (shards.py); the newest versions are never copied (reserved_memory.py).

The index knows offsets, not places: carrying rows to other files does not touch it. One thread changes it. Readers in
other threads hold the tablet's lock during a call; the arrays they get are copies.

Memory: 12 bytes per slot at 35 to 84 % load, and 8 per row id: 22 to 40 bytes a key, 30 on average. An index
that may not take as much lies in runs on disk, and only some keys are here (resident.py): ``wanted`` says which have to
be read before anything is asked about them, and ``admit`` takes them in. Row ids are then those of keys in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from strom.errors import LimitExceeded, StoreCorrupt
from strom.kv.arrays import Bools, Hashes, Int32s, Int64s
from strom.kv.index import newest_kernels
from strom.kv.index.grouping import Order, SameWithin, group
from strom.kv.index.resident import Resident
from strom.kv.index.shards import Shards
from strom.kv.index.slot_kernels import DEPTH, DIRTY, PREFIX
from strom.kv.kernels.reserved_memory import Cells
from strom.kv.runs.run_tiles import FoundVersions, RunTiles

Same = Callable[[Int64s, Int64s], Bools]
"""(positions in the request, row ids) -> whether the requested key is the key of the row."""

MAX_ROW_IDS = (1 << 31) - 2


class ShardEntries(NamedTuple):
    """What one shard knows: all keys whose hash begins with the ``depth`` bits of ``prefix``."""

    prefix: int
    depth: int
    hashes: Hashes
    row_ids: npt.NDArray[np.integer[Any]]
    versions: Int64s


class IndexTables(NamedTuple):
    """The index as kernels see it, valid while the lock is held."""

    shift: int
    directory: Int32s
    shards: Int64s
    newest: Int64s
    """The chunks of the newest versions."""
    size: int
    """All row ids are below this."""


class KeyIndex:
    """Keys by hash, and the newest version of each."""

    def __init__(self, tiles: list[tuple[int, int]] | None = None) -> None:
        self._table = Shards(tiles)
        self._newest = Cells(8)
        self._size = 0
        self._free: Int64s = np.empty(0, np.int64)
        self._free_count = 0
        self.resident: Resident | None = None
        """Which keys are in memory; None: all."""
        self.leaving = False
        """Its memory is wanted for others: the next snapshot writes it to runs."""
        self.uses = 0
        """How often keys were asked for. Concurrent readers may count as one."""

    # -- reading ---------------------------------------------------------------------------------------------------
    @property
    def keys(self) -> int:
        """Keys known, those with a tombstone included."""
        return self.here if self.resident is None else self.resident.keys

    @property
    def here(self) -> int:
        """Keys in memory."""
        return self._size - self._free_count

    @property
    def memory_bytes(self) -> int:
        """Memory in use."""
        of_runs = 0 if self.resident is None else self.resident.memory_bytes
        return self._table.memory_bytes + 8 * self._size + self._free.nbytes + of_runs

    def find(self, hashes: Hashes, same: Same | None) -> Int64s:
        """The row id of each key, or -1. ``same`` compares all candidates at once; None: the hash is the key."""
        hashes = np.ascontiguousarray(hashes, np.uint64)
        found = self._table.find(hashes)
        if same is None:
            return found
        which = np.flatnonzero(found >= 0)
        while len(which):
            which = which[~same(which, found[which])]
            if len(which):  # another key has this hash: try the next entry
                behind = found[which]
                self._table.find_after(hashes[which], behind)
                found[which] = behind
                which = which[behind >= 0]
        return found

    def newest(self, row_ids: Int64s) -> Int64s:
        """The version of each row's newest record; NONE for an unknown row id, such as -1."""
        row_ids = np.ascontiguousarray(row_ids, np.int64)
        out = np.empty(len(row_ids), np.int64)
        newest_kernels.load_all(row_ids, self._size, self._newest.table, out)
        return out

    def group(self, hashes: Hashes, same_within: SameWithin | None) -> Order:
        """The rows of one batch by key: see :func:`strom.kv.index.grouping.group`."""
        return group(hashes, same_within)

    @property
    def tables(self) -> IndexTables:
        """For kernels that find keys and their versions in one call."""
        table = self._table
        return IndexTables(table.shift, table.directory, table.shards, self._newest.table, self._size)

    @property
    def view(self) -> tuple[int, Int32s, Int64s, Int64s, int, int]:
        """``tables`` without names, for a call of every lookup, and where uses are marked (0: all is in memory)."""
        table, resident = self._table, self.resident
        marks = 0 if resident is None else resident.marks_address
        return table.shift, table.directory, table.shards, self._newest.table, self._size, marks

    # -- changing -------------------------------------------------------------------------------------------------
    def insert(self, hashes: Hashes) -> Int64s:
        """Add keys that are absent and distinct; returns their row ids. They have no version yet. All or none."""
        hashes = np.ascontiguousarray(hashes, np.uint64)
        row_ids = self._place(hashes)
        if self.resident is not None:
            self.resident.keys += len(row_ids)
            self.resident.came(row_ids)
        return row_ids

    def _place(self, hashes: Hashes) -> Int64s:
        again = min(len(hashes), self._free_count)
        fresh = len(hashes) - again
        if self._size + fresh > MAX_ROW_IDS:
            raise LimitExceeded("a bucket cannot hold more keys", limit=MAX_ROW_IDS)
        row_ids = np.arange(self._size - again, self._size + fresh)
        if again:
            row_ids[:again] = self._free[self._free_count - again : self._free_count]
        if self._size + fresh > self._newest.capacity:
            self._newest.ensure(self._size + fresh)
        self._table.insert(hashes, row_ids)
        self._size += fresh
        self._free_count -= again
        return row_ids

    def set_newest(self, row_ids: Int64s, versions: Int64s, hashes: Hashes | None = None) -> None:
        """Set each row's newest record. ``hashes``: of these rows, so that only their shards become dirty."""
        row_ids = np.ascontiguousarray(row_ids, np.int64)
        versions = np.ascontiguousarray(versions, np.int64)
        if len(row_ids) != len(versions) or not newest_kernels.store_all(
            row_ids, versions, self._size, self._newest.table
        ):
            raise ValueError("a row id or version out of range")
        if self.resident is not None:
            self.resident.written += len(row_ids)
        self._table.mark_dirty(None if hashes is None else np.ascontiguousarray(hashes, np.uint64))

    def forget(self, row_ids: Int64s, hashes: Hashes) -> None:
        """Remove keys; their row ids may be reused."""
        row_ids = np.ascontiguousarray(row_ids, np.int64)
        hashes = np.ascontiguousarray(hashes, np.uint64)
        self._table.remove(hashes, row_ids)
        self._release(row_ids)
        if self.resident is not None:
            self.resident.forgot(hashes)

    def _release(self, row_ids: Int64s) -> None:
        newest_kernels.store_all(row_ids, np.full(len(row_ids), -1), self._size, self._newest.table)
        count = self._free_count + len(row_ids)
        if count > len(self._free):
            self._free = np.concatenate([self._free, np.empty(max(count, 64), np.int64)])
        self._free[self._free_count : count] = row_ids
        self._free_count = count

    # -- keys on disk ---------------------------------------------------------------------------------------------
    def wanted(self, hashes: Hashes) -> Hashes | None:
        """The hashes to read from the runs before anything is asked about them; None: memory can answer."""
        if self.resident is None:
            return None
        return self.resident.wanted(np.ascontiguousarray(hashes, np.uint64), self._table)

    def admit(self, tiles: RunTiles, asked: Hashes, found: FoundVersions, *, again: bool = False) -> None:
        """Take in what these runs have about hashes that ``wanted`` gave, unless the index lies in others by now.

        ``again``: not for the first time for one question. Then no key leaves for it: it may be one that it is about.
        """
        resident = self.resident
        if resident is None or resident.tiles is not tiles:
            return
        there = np.zeros(len(asked), np.bool_)
        there[found.which] = True
        resident.are_absent(asked[~there])
        unknown = np.zeros(len(asked), np.bool_)
        unknown[resident.still_unknown(asked, self._table)] = True
        taken = unknown[found.which]
        if not again:
            self.make_room(int(np.count_nonzero(taken)))  # before: what is wanted now does not go at once
        self._take_in(asked[found.which[taken]], found.versions[taken])

    def _take_in(self, hashes: Hashes, versions: Int64s) -> None:
        """Keys as the runs have them: their shards are no dirtier than before."""
        table = self._table
        dirty = table.shards[: table.count, DIRTY].copy()
        row_ids = self._place(hashes)
        newest_kernels.store_all(row_ids, versions, self._size, self._newest.table)
        table.shards[: len(dirty), DIRTY] = dirty
        if self.resident is not None:
            self.resident.came(row_ids)

    def make_room(self, coming: int = 0) -> None:
        """Let keys go that the runs have, if there are too many with those that are ``coming``."""
        if self.resident is not None and self.here + coming > self.resident.keys_max:
            for row_ids in self.resident.leave(self._table, self._newest.table, self.here + coming):
                self._release(row_ids)

    def lie_in(self, tiles: RunTiles, offset: int) -> None:
        """For an empty index: these runs have all of it as of ``offset``. The caller counts the keys."""
        self.resident = Resident(tiles, offset, 0)

    def move_out(self, tiles: RunTiles, offset: int) -> tuple[Int64s, Int64s]:
        """From now on the index lies in these runs, which have all of it as of ``offset``; what is newer stays.

        Returns the row ids that stay, rising, and their new ones.
        """
        kept: list[tuple[Hashes, Int64s, Int64s]] = []
        for shard in range(self.shards):
            hashes, row_ids = self._table.entries(shard)
            versions = self.newest(row_ids)
            stay = np.isin(hashes, hashes[versions >= offset << 1])
            kept.append((hashes[stay], row_ids[stay], versions[stay]))
        keys = self.keys
        hashes, old, versions = (np.concatenate(parts) for parts in zip(*kept, strict=True))
        self._table, self._newest, self._size = Shards(), Cells(8), 0
        self._free, self._free_count = np.empty(0, np.int64), 0
        new = self._place(hashes)
        newest_kernels.store_all(new, versions, self._size, self._newest.table)
        self.resident = Resident(tiles, offset, keys)
        self.resident.came(new)
        self.leaving = False
        order = np.argsort(old)
        return old[order], new[order]

    def take_tile(self, hashes: Hashes, versions: Int64s) -> None:
        """Take in a whole tile, on the way to having all of the index in memory."""
        if self.resident is not None:
            unknown = self.resident.still_unknown(hashes, self._table)
            self._take_in(hashes[unknown], versions[unknown])

    def move_in(self) -> None:
        """All tiles were taken in: from now on the index is in memory."""
        self.resident = None
        self._table.mark_dirty(None)

    def entries_below(self, prefix: int, depth: int, *, all_of_it: bool) -> tuple[Hashes, Int64s] | None:
        """Hashes and versions of the shards below a shard's place that changed since they were exported.

        They count as exported now. None when there are none; ``all_of_it``: also those that did not change.
        """
        shards = self._table.below(prefix, depth)
        taken = [self.export_shard(s) for s in shards if all_of_it or self._table.shards[s, DIRTY]]
        if not taken:
            return None
        return np.concatenate([one.hashes for one in taken]), np.concatenate([one.versions for one in taken])

    def mark_dirty_hashes(self, hashes: Hashes) -> None:
        """Export the shards of these hashes again."""
        self._table.mark_dirty(hashes)

    def mark_dirty_below(self, prefix: int, depth: int) -> None:
        """Export the shards below a place again."""
        self._table.shards[self._table.below(prefix, depth), DIRTY] = 1

    # -- snapshots ------------------------------------------------------------------------------------------------
    @property
    def shards(self) -> int:
        """The number of shards. They are numbered from 0; the prefix of a number only ever gets longer."""
        return self._table.count

    def dirty_shards(self) -> Int64s:
        """The shards that changed since they were exported or loaded."""
        return np.flatnonzero(self._table.shards[: self._table.count, DIRTY])

    def mark_dirty(self, shard: int) -> None:
        """Export the shard again: the snapshot did not keep what was exported (stepped back, left out, not written)."""
        self._table.shards[shard, DIRTY] = 1

    def place_of(self, shard: int) -> tuple[int, int]:
        """The shard's (prefix, depth), which names it in files."""
        return int(self._table.shards[shard, PREFIX]), int(self._table.shards[shard, DEPTH])

    def entries(self, shard: int) -> ShardEntries:
        """A copy of a shard."""
        hashes, row_ids = self._table.entries(shard)
        return ShardEntries(*self.place_of(shard), hashes, row_ids, self.newest(row_ids))

    def export_shard(self, shard: int) -> ShardEntries:
        """A copy of a shard, and mark the shard clean."""
        self._table.shards[shard, DIRTY] = 0
        return self.entries(shard)

    @classmethod
    def load(cls, tiles: Sequence[tuple[int, int, int]], shards: Iterable[ShardEntries]) -> KeyIndex:
        """The index that was exported shard by shard. Impossible entries raise :class:`StoreCorrupt`.

        ``tiles``: the prefix, depth and number of entries of each shard, before the first of them is read.
        """
        made = cls([tile[:2] for tile in tiles])
        for shard, (_, _, entries) in enumerate(tiles):
            made._table.make_room(shard, entries)
        for shard, one in enumerate(shards):
            made._load(shard, one)
        made._find_free()
        for shard, tile in enumerate(tiles):
            if made.place_of(shard) == tile[:2]:  # not split while it was filled
                made._table.shards[shard, DIRTY] = 0
        return made

    def _load(self, shard: int, entries: ShardEntries) -> None:
        hashes = np.ascontiguousarray(entries.hashes, np.uint64)
        versions = np.ascontiguousarray(entries.versions, np.int64)
        if not len(hashes) == len(entries.row_ids) == len(versions):
            raise StoreCorrupt("a shard of the index has columns of different lengths")
        if not len(hashes):
            return
        beyond = int(entries.row_ids.max()) + 1
        if beyond > MAX_ROW_IDS or entries.row_ids.min() < 0:
            raise self._stray(entries)
        row_ids = np.ascontiguousarray(entries.row_ids, np.uint32)
        self._newest.ensure(beyond)
        self._size = max(self._size, beyond)
        if not newest_kernels.fill_empty(row_ids, versions, self._newest.table):
            raise StoreCorrupt(
                f"the shard {entries.prefix}/{entries.depth} has a row twice, or a bad version"
            )
        if self.place_of(shard) == entries[:2] and self._table.fill(shard, hashes, row_ids):
            return
        strays = (hashes >> np.uint64(1)) >> np.uint64(63 - entries.depth) != entries.prefix
        if strays.any():
            raise self._stray(entries)
        self._table.insert(hashes, row_ids.astype(np.int64))

    @staticmethod
    def _stray(entries: ShardEntries) -> StoreCorrupt:
        return StoreCorrupt(f"the shard {entries.prefix}/{entries.depth} has entries that are not its own")

    def _find_free(self) -> None:
        table = self._newest.table
        self._free = np.empty(newest_kernels.take_empty(self._size, table, np.empty(0, np.int64)), np.int64)
        self._free_count = newest_kernels.take_empty(self._size, table, self._free)
