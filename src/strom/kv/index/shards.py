"""A hash table in shards: 64-bit hash -> small number. A hash may have several entries.

A shard has at most 64 Ki slots; the hash's high bits choose it through a directory (extendible hashing). It begins with
1 Ki slots, doubles within its area, and then splits on its own: an insert waits for a millisecond at worst, never for
the whole table. Shards made together do not fill up together, because their limits differ.

Shards never shrink; the memory of a table that was emptied is kept for the next keys.
One writer; readers hold the lock that the writer holds while it changes the table.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from strom.errors import LimitExceeded, StoreCorrupt
from strom.kv.arrays import Hashes, Int32s, Int64s, Octets
from strom.kv.index import slot_kernels
from strom.kv.index.slot_kernels import (
    AREA,
    AREA_BYTES,
    AREA_SLOTS,
    DEPTH,
    DIRTY,
    FIELDS,
    LIMIT,
    MASK,
    PREFIX,
    USED,
)
from strom.kv.kernels.reserved_memory import address_of, reserve

FIRST_SLOTS: Final = 1 << 10
MAX_DEPTH: Final = 24
"""A directory of 64 MB. Keys that need more agree in the first 24 bits of their hashes, which is no accident."""
_SLAB_AREAS: Final = 16
_PAGE: Final = 4096


class Shards:
    """hash -> value (a number from 0 to 2^32 - 2), many per hash."""

    def __init__(self, tiles: list[tuple[int, int]] | None = None) -> None:
        """``tiles``: the (prefix, depth) of the shards to begin with; they must cover the hashes exactly."""
        self.count = 0
        """The number of shards."""
        self.shards: Int64s = np.zeros((4, FIELDS), np.int64)
        self._slabs: list[Octets] = []
        tiles = [(0, 0)] if tiles is None else tiles
        self.directory, self.shift = _directory(tiles)
        for prefix, depth in tiles:
            self._add(prefix, depth, FIRST_SLOTS)

    # -- entries --------------------------------------------------------------------------------------------------
    def find(self, hashes: Hashes) -> Int64s:
        """The first value of each hash, or -1."""
        out = np.empty(len(hashes), np.int64)
        slot_kernels.find_first(hashes, self.shift, self.directory, self.shards, out)
        return out

    def find_after(self, hashes: Hashes, values: Int64s) -> None:
        """Replace each value by the next one with the same hash, or -1."""
        slot_kernels.find_after(hashes, values, self.shift, self.directory, self.shards)

    def insert(self, hashes: Hashes, values: Int64s) -> None:
        """Add absent entries. All or none: without room, those added are removed again."""
        done, end = 0, len(hashes)
        try:
            while (
                done := slot_kernels.insert_some(
                    hashes, values, done, self.shift, self.directory, self.shards
                )
            ) < end:
                self.grow(self.shard_of(int(hashes[done])))
        except (LimitExceeded, MemoryError, OSError):
            self.remove(hashes[:done], values[:done])
            raise

    def remove(self, hashes: Hashes, values: Int64s) -> None:
        """Remove entries that exist."""
        done = slot_kernels.remove_all(hashes, values, self.shift, self.directory, self.shards)
        if done < len(hashes):
            raise ValueError(f"no entry {int(hashes[done]):#x} -> {int(values[done])} to remove")

    # -- shards ---------------------------------------------------------------------------------------------------
    def shard_of(self, hash_: int) -> int:
        """The shard that has the hash."""
        return int(self.directory[(hash_ >> 1) >> self.shift])

    def below(self, prefix: int, depth: int) -> Int64s:
        """The shards whose hashes begin with these bits; a shard of fewer bits is among them if it has such hashes."""
        width = 1 << max(63 - self.shift - depth, 0)
        first = (prefix << (63 - self.shift)) >> depth
        return np.unique(self.directory[first : first + width]).astype(np.int64)

    def entries(self, shard: int) -> tuple[Hashes, Int64s]:
        """Copies of a shard's hashes and values."""
        area, mask, used = (int(self.shards[shard, field]) for field in (AREA, MASK, USED))
        hashes, values = np.empty(used, np.uint64), np.empty(used, np.int64)
        slot_kernels.take_entries(area, mask, hashes, values, False)
        return hashes, values

    def mark_dirty(self, hashes: Hashes | None) -> None:
        """Mark the shards of these hashes (None: all shards) as changed."""
        if hashes is None:
            self.shards[: self.count, DIRTY] = 1
        else:
            slot_kernels.mark_dirty(hashes, self.shift, self.directory, self.shards)

    @property
    def memory_bytes(self) -> int:
        """Memory in use: the pages of each area that were touched."""
        sizes = self.shards[: self.count, MASK] + 1
        areas = (-(-sizes * 8 // _PAGE) - (-sizes * 4 // _PAGE)) * _PAGE
        return int(areas.sum()) + self.directory.nbytes + self.shards.nbytes

    def grow(self, shard: int) -> None:
        """Make room in a full shard: double it, or split it in two."""
        if self.shards[shard, MASK] + 1 < AREA_SLOTS:
            size = int(self.shards[shard, MASK] + 1) * 2
            self._refill([shard], size)
        else:
            self._refill([shard, self._divide(shard)], AREA_SLOTS)

    def make_room(self, shard: int, entries: int) -> None:
        """Give an empty shard the size for this many entries.

        Entries in the order of their slots, as exported, would run into each other in a smaller one.
        """
        size = FIRST_SLOTS
        while size < AREA_SLOTS and _limit(shard, size) < entries:
            size *= 2
        if not self.shards[shard, USED]:
            self.shards[shard, MASK], self.shards[shard, LIMIT] = size - 1, _limit(shard, size)

    def fill(self, shard: int, hashes: Hashes, values: npt.NDArray[np.uint32]) -> bool:
        """Fill an empty shard with its entries; False, and nothing done, when they are too many or belong elsewhere."""
        return bool(slot_kernels.fill(hashes, values, shard, self.shards))

    def _divide(self, shard: int) -> int:
        depth, prefix = int(self.shards[shard, DEPTH]) + 1, int(self.shards[shard, PREFIX]) * 2
        if depth > MAX_DEPTH:
            raise LimitExceeded("too many keys have hashes that begin alike", limit=AREA_SLOTS)
        added = self._add(prefix + 1, depth, AREA_SLOTS)
        if depth > 63 - self.shift:
            self.directory = np.repeat(self.directory, 2)
            self.shift -= 1
        width = 1 << (63 - self.shift - depth)
        self.directory[(prefix + 1) * width : (prefix + 2) * width] = added
        self.shards[shard, DEPTH], self.shards[shard, PREFIX] = depth, prefix
        return added

    def _refill(self, shards: list[int], size: int) -> None:
        """Take out the entries of the first shard and insert them where the directory now says."""
        old = self.shards[shards[0]]
        used = int(old[USED])
        hashes, values = np.empty(used, np.uint64), np.empty(used, np.int64)
        slot_kernels.take_entries(int(old[AREA]), int(old[MASK]), hashes, values, True)
        old[USED] = 0
        for shard in shards:
            self.shards[shard, MASK] = size - 1
            self.shards[shard, LIMIT] = size - 1  # what was there fits
        slot_kernels.insert_some(hashes, values, 0, self.shift, self.directory, self.shards)
        for shard in shards:
            self.shards[shard, LIMIT] = _limit(shard, size)

    def _add(self, prefix: int, depth: int, size: int) -> int:
        shard = self.count
        if shard == len(self._slabs) * _SLAB_AREAS:
            self._slabs.append(reserve(_SLAB_AREAS * AREA_BYTES, large=bool(self._slabs)))
        if shard == len(self.shards):
            self.shards = np.concatenate([self.shards, np.zeros_like(self.shards)])
        area = address_of(self._slabs[-1]) + shard % _SLAB_AREAS * AREA_BYTES
        self.shards[shard] = (area, size - 1, 0, _limit(shard, size), depth, prefix, 1, 0)
        self.count += 1
        return shard


def _limit(shard: int, size: int) -> int:
    """Entries a shard takes before it grows: 70 to 84 % of its slots, depending on its number."""
    return size * (70 + shard * 11 % 15) // 100


def _directory(tiles: list[tuple[int, int]]) -> tuple[Int32s, int]:
    depth = max((depth for _, depth in tiles), default=0)
    if depth > MAX_DEPTH or any(own < 0 for _, own in tiles):
        raise StoreCorrupt(f"a shard of depth {depth}")
    directory = np.full(1 << depth, -1, np.int32)
    covered = 0
    for shard, (prefix, own) in enumerate(tiles):
        width = 1 << (depth - own)
        if not 0 <= prefix < 1 << own or (directory[prefix * width : (prefix + 1) * width] >= 0).any():
            raise StoreCorrupt(f"the shard {prefix}/{own} is out of place")
        directory[prefix * width : (prefix + 1) * width] = shard
        covered += width
    if covered != 1 << depth:
        raise StoreCorrupt("shards of the index are missing")
    return directory, 63 - depth
