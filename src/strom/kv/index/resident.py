"""The part of an index that is in memory while runs on disk have all of it (``runs/``): which keys, and which leave.

Invariants
    1. All keys with one hash are in memory, or none of them is.
    2. What is in memory is newer than the runs, or the same. The runs have the index as of the manifest's offset, so a
       key whose version is below it is the same in both, unless its hash is among ``changed``.
    3. Only keys that are the same in both leave, those first that were not asked for lately. What a writer has found
       and not published yet is held.

Used under the tablet's lock.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from strom.kv.arrays import Hashes, Int64s, Octets
from strom.kv.index import resident_kernels as kernels
from strom.kv.index.shards import Shards
from strom.kv.index.slot_kernels import AREA_SLOTS
from strom.kv.kernels.reserved_memory import address_of
from strom.kv.runs.run_tiles import RunTiles

ABSENT_MAX: Final = 1 << 16
"""Hashes remembered that a filter took for known."""
SWEEPS: Final = 4
"""Shards looked through at once, unless memory runs over."""
OVER: Final = 1.1
"""Memory runs over at this multiple of what it may have."""
STAY_SHARE: Final = 4
"""After a try in vain, the next one comes when there are 1/STAY_SHARE more keys."""
WRITTEN_MIN: Final = 1 << 16
"""A snapshot for fewer keys would cost more than their memory is worth."""


class Resident:
    """What of an index is in memory."""

    def __init__(self, tiles: RunTiles, offset: int, keys: int) -> None:
        self.tiles = tiles
        """Replaced, never changed."""
        self.limit = offset << 1
        """Versions below this one are in the runs."""
        self.keys = keys
        """Of the index, wherever they are."""
        self.keys_max = 1 << 62
        """Keys leave while there are more, if they may."""
        self.written = 0
        """Keys written since the snapshot that the runs are of: these have to stay."""
        self._stay = 0
        """So many could not leave when it was last tried with all of them."""
        self.changed: Hashes = np.empty(0, np.uint64)
        """Rising. The runs are wrong about these: memory has all keys with them, maybe none."""
        self.left = 0
        """Keys that left memory."""
        self._absent: set[int] = set()
        self._marks: Octets = np.zeros(1 << 10, np.uint8)
        self.marks_address = address_of(self._marks)
        """Where the marks are, by row id."""
        self._held: Int64s = np.empty(0, np.int64)
        self._hand = 0

    @property
    def memory_bytes(self) -> int:
        """Of what is only needed because there are runs: their filters and fences, marks."""
        return self.tiles.memory_bytes + self._marks.nbytes + self.changed.nbytes

    def wanted(self, hashes: Hashes, table: Shards) -> Hashes | None:
        """The hashes that only the disk can answer; None when there are none. Marks the others as used."""
        unknown = np.empty(len(hashes), np.int64)
        count = kernels.list_unknown(
            hashes, self.changed, table.shift, table.directory, table.shards, self._marks, unknown
        )
        if not count:
            return None
        asked = hashes[unknown[:count]]
        asked = np.unique(asked[self.tiles.may_have(asked)])
        if self._absent and len(asked):
            asked = asked[[hash_ not in self._absent for hash_ in asked.tolist()]]
        return asked if len(asked) else None

    def still_unknown(self, hashes: Hashes, table: Shards) -> Int64s:
        """The positions of hashes that are not in memory, and that memory may take from the runs."""
        unknown = np.empty(len(hashes), np.int64)
        count = kernels.list_unknown(
            hashes, self.changed, table.shift, table.directory, table.shards, self._marks, unknown
        )
        return unknown[:count]

    def are_absent(self, hashes: Hashes) -> None:
        """No run has these although filters said so: do not read for them again."""
        if len(self._absent) > ABSENT_MAX:
            self._absent.clear()
        self._absent.update(hashes.tolist())

    def came(self, row_ids: Int64s) -> None:
        """Keys are in memory from now on."""
        beyond = int(row_ids.max()) + 1 if len(row_ids) else 0
        if beyond > len(self._marks):
            room = np.zeros(max(beyond, 2 * len(self._marks)), np.uint8)
            room[: len(self._marks)] = self._marks
            self._marks, self.marks_address = room, address_of(room)
        kernels.mark_all(row_ids, 1, self._marks)

    def hold(self, row_ids: Int64s) -> None:
        """A writer found these: they do not leave before it finds others."""
        kernels.mark_all(self._held, 1, self._marks)
        self._held = np.array(row_ids, np.int64)
        kernels.mark_all(self._held, kernels.HELD, self._marks)

    def forgot(self, hashes: Hashes) -> None:
        """Keys were removed from memory; the runs may have them."""
        self.changed = np.union1d(self.changed, hashes)
        self.keys -= len(hashes)

    @property
    def crowded(self) -> bool:
        """Whether a snapshot is due, so that keys may leave."""
        return self.written > max(self.keys_max // 2, WRITTEN_MIN)

    def on_disk(self, tiles: RunTiles, offset: int, changed: Hashes, written: int) -> None:
        """A manifest is durable. ``changed``, ``written``: as it was when its snapshot began."""
        self.tiles = tiles
        self.limit = offset << 1
        self.changed = np.setdiff1d(self.changed, changed, assume_unique=True)
        self.written -= written
        self._stay = 0
        self._absent.clear()

    def leave(self, table: Shards, newest: Int64s, here: int) -> list[Int64s]:
        """Remove keys while there are too many (``here``: now); the row ids of those that left."""
        gone: list[Int64s] = []
        excess = here - self.keys_max
        if excess <= 0 or here <= self._stay + self._stay // STAY_SHARE:
            return gone
        over = here > OVER * self.keys_max
        room = np.empty(AREA_SLOTS, np.int64)
        for _ in range((kernels.MARK_MAX + 1) * table.count if over else SWEEPS):
            self._hand = (self._hand + 1) % table.count
            count = kernels.sweep(
                self._hand, table.shards, self.changed, self.limit, newest, self._marks, room
            )
            gone.append(room[:count].copy())
            self.left += count
            excess -= count
            if excess <= 0:
                return gone
        if over:  # the others are not on disk yet, or a writer holds them
            self._stay = here - sum(map(len, gone))
        return gone
