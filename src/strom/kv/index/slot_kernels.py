"""Kernels of the hash table: slots in the areas of shards.

An area holds ``AREA_SLOTS`` slots: 64-bit hashes, then 32-bit values. A shard uses the first mask + 1 of them, a power
of two. A value is stored plus one, so that zeroed memory is empty; the hash 0 is an ordinary hash, and only the value
says whether a slot is taken. Probing is linear from the hash's low bits; there is always an empty slot, because a shard
is filled only up to its limit. Deleting shifts later slots back and leaves no marker.

A shard is a row of ``FIELDS`` numbers. The directory maps the hash's high bits to a shard: ``shift`` is 63 - the
directory's depth.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from strom.kv.arrays import Hashes, Int32s, Int64s
from strom.kv.kernels.compile import (
    boolean,
    int32,
    int64,
    kernel,
    load_u32,
    load_u64,
    prefetch,
    ro,
    rw,
    store_u32,
    store_u64,
    uint32,
    uint64,
    void,
)

AREA_SLOTS: Final = 1 << 16
VALUES_AT: Final = AREA_SLOTS * 8
AREA_BYTES: Final = AREA_SLOTS * 12
AREA, MASK, USED, LIMIT, DEPTH, PREFIX, DIRTY = 0, 1, 2, 3, 4, 5, 6
FIELDS: Final = 8
_AHEAD: Final = 32
"""Slots prefetched before the first of them is read: memory serves many requests at once as fast as one."""


@kernel()
def shard_of(value: Any, shift: int, directory: Int32s) -> Any:
    return int64(directory[int64((value >> uint64(1)) >> uint64(shift))])


@kernel()
def _seek(area: int, mask: int, value: Any, slot: int) -> int:
    """From ``slot`` on: the first one with this hash, or -1 when an empty one comes first."""
    while True:
        here = load_u64(area + slot * 8)
        if here == value:
            if load_u32(area + VALUES_AT + slot * 4) != 0:
                return slot
            return -1
        if here == 0 and load_u32(area + VALUES_AT + slot * 4) == 0:
            return -1
        slot = (slot + 1) & mask


@kernel()
def slot_with(area: int, mask: int, value: Any, stored: int) -> int:
    """The slot with this hash and stored value, or -1."""
    slot = _seek(area, mask, value, int64(value) & mask)
    while slot >= 0:
        if int64(load_u32(area + VALUES_AT + slot * 4)) == stored:
            return slot
        slot = _seek(area, mask, value, (slot + 1) & mask)
    return -1


@kernel()
def first_slot(area: int, mask: int, value: Any) -> int:
    """The first slot with this hash, or -1."""
    return _seek(area, mask, value, int64(value) & mask)


@kernel()
def next_slot(area: int, mask: int, value: Any, slot: int) -> int:
    """The next slot with the same hash, or -1."""
    return _seek(area, mask, value, (slot + 1) & mask)


@kernel()
def stored_at(area: int, slot: int) -> Any:
    return load_u32(area + VALUES_AT + slot * 4)


@kernel()
def store_at(area: int, slot: int, stored: Any) -> None:
    store_u32(area + VALUES_AT + slot * 4, stored)


@kernel()
def place(area: int, mask: int, value: Any, stored: Any) -> None:
    """Put an entry into the first empty slot from its home slot on."""
    slot = int64(value) & mask
    while load_u32(area + VALUES_AT + slot * 4) != 0:
        slot = (slot + 1) & mask
    store_u64(area + slot * 8, value)
    store_u32(area + VALUES_AT + slot * 4, stored)


@kernel()
def remove_slot(area: int, mask: int, slot: int) -> None:
    """Empty a slot, and move back entries that were pushed past it."""
    hole, other = slot, slot
    while True:
        other = (other + 1) & mask
        stored = load_u32(area + VALUES_AT + other * 4)
        if stored == 0:
            break
        value = load_u64(area + other * 8)
        if ((other - int64(value)) & mask) >= ((other - hole) & mask):
            store_u64(area + hole * 8, value)
            store_u32(area + VALUES_AT + hole * 4, stored)
            hole = other
    store_u64(area + hole * 8, uint64(0))
    store_u32(area + VALUES_AT + hole * 4, uint32(0))


@kernel(void(ro(uint64), int64, ro(int32), ro(int64, 2), rw(int64)))
def find_first(hashes: Hashes, shift: int, directory: Int32s, shards: Int64s, out: Int64s) -> None:
    """The value of the first slot with each hash, or -1."""
    homes = np.empty(_AHEAD, np.int64)
    masks = np.empty(_AHEAD, np.int64)
    for base in range(0, len(hashes), _AHEAD):
        count = min(_AHEAD, len(hashes) - base)
        for i in range(count):
            shard = shard_of(hashes[base + i], shift, directory)
            area, mask = shards[shard, AREA], shards[shard, MASK]
            home = int64(hashes[base + i]) & mask
            prefetch(area + home * 8)
            prefetch(area + VALUES_AT + home * 4)
            homes[i], masks[i] = area, mask
        for i in range(count):
            area, value = homes[i], hashes[base + i]
            slot = first_slot(area, masks[i], value)
            out[base + i] = int64(stored_at(area, slot)) - 1 if slot >= 0 else -1


@kernel(void(ro(uint64), rw(int64), int64, ro(int32), ro(int64, 2)))
def find_after(hashes: Hashes, values: Int64s, shift: int, directory: Int32s, shards: Int64s) -> None:
    """Replace each value by the next one with the same hash, or -1."""
    for i in range(len(hashes)):
        shard = shard_of(hashes[i], shift, directory)
        area, mask = shards[shard, AREA], shards[shard, MASK]
        slot = slot_with(area, mask, hashes[i], values[i] + 1)
        if slot >= 0:
            slot = _seek(area, mask, hashes[i], (slot + 1) & mask)
        values[i] = int64(stored_at(area, slot)) - 1 if slot >= 0 else -1


@kernel(int64(ro(uint64), ro(int64), int64, int64, ro(int32), rw(int64, 2)))
def insert_some(
    hashes: Hashes, values: Int64s, start: int, shift: int, directory: Int32s, shards: Int64s
) -> int:
    """Insert from ``start`` on; returns the position of the first entry whose shard is full, or the end."""
    for base in range(start, len(hashes), _AHEAD):
        stop = min(base + _AHEAD, len(hashes))
        for i in range(base, stop):
            shard = shard_of(hashes[i], shift, directory)
            prefetch(shards[shard, AREA] + VALUES_AT + (int64(hashes[i]) & shards[shard, MASK]) * 4)
            prefetch(shards[shard, AREA] + (int64(hashes[i]) & shards[shard, MASK]) * 8)
        for i in range(base, stop):
            shard = shard_of(hashes[i], shift, directory)
            if shards[shard, USED] >= shards[shard, LIMIT]:
                return i
            place(shards[shard, AREA], shards[shard, MASK], hashes[i], uint32(values[i] + 1))
            shards[shard, USED] += 1
            shards[shard, DIRTY] = 1
    return len(hashes)


@kernel(int64(ro(uint64), ro(int64), int64, ro(int32), rw(int64, 2)))
def remove_all(hashes: Hashes, values: Int64s, shift: int, directory: Int32s, shards: Int64s) -> int:
    """Remove entries; returns the position of the first that does not exist, or the end."""
    for i in range(len(hashes)):
        shard = shard_of(hashes[i], shift, directory)
        area, mask = shards[shard, AREA], shards[shard, MASK]
        slot = slot_with(area, mask, hashes[i], values[i] + 1)
        if slot < 0:
            return i
        remove_slot(area, mask, slot)
        shards[shard, USED] -= 1
        shards[shard, DIRTY] = 1
    return len(hashes)


@kernel(boolean(ro(uint64), ro(uint32), int64, rw(int64, 2)))
def fill(hashes: Hashes, values: Any, shard: int, shards: Int64s) -> bool:
    """Fill an empty shard with its entries; False, and nothing done, when they are too many or belong elsewhere.

    Entries in the order of their slots, as ``take_entries`` gives them, fill it from beginning to end.
    """
    area, mask = shards[shard, AREA], shards[shard, MASK]
    down, prefix = uint64(63 - shards[shard, DEPTH]), uint64(shards[shard, PREFIX])
    if len(hashes) > shards[shard, LIMIT] or shards[shard, USED] != 0:
        return False
    strays = 0
    for i in range(len(hashes)):
        strays += 1 if (hashes[i] >> uint64(1)) >> down != prefix else 0
    if strays > 0:
        return False
    for i in range(len(hashes)):
        place(area, mask, hashes[i], uint32(values[i] + uint32(1)))
    shards[shard, USED] = len(hashes)
    shards[shard, DIRTY] = 1
    return True


@kernel(void(ro(uint64), int64, ro(int32), rw(int64, 2)))
def mark_dirty(hashes: Hashes, shift: int, directory: Int32s, shards: Int64s) -> None:
    for i in range(len(hashes)):
        shards[shard_of(hashes[i], shift, directory), DIRTY] = 1


@kernel(int64(int64, int64, rw(uint64), rw(int64), boolean))
def take_entries(area: int, mask: int, hashes: Hashes, values: Int64s, clear: bool) -> int:
    """Copy a shard's entries, as many as there is room for; with ``clear`` the area is zeros afterwards."""
    count = 0
    for slot in range(mask + 1):
        stored = load_u32(area + VALUES_AT + slot * 4)
        if stored != 0 and count < len(hashes):
            hashes[count], values[count] = load_u64(area + slot * 8), int64(stored) - 1
            count += 1
            if clear:
                store_u64(area + slot * 8, uint64(0))
                store_u32(area + VALUES_AT + slot * 4, uint32(0))
    return count
