"""Kernels over lists of rows. The cell of a row: the tuple's hash (8 bytes), before (4) and behind (4).

``before`` is 0 for a row in no list, 1 for the first of a list, else the previous row plus 2. ``behind`` is the next
row plus 1, 0 at the end of a list.
"""

from __future__ import annotations

from typing import Any, Final

from strom.kv.arrays import Bools, Hashes, Int32s, Int64s
from strom.kv.index.slot_kernels import (
    AREA,
    DIRTY,
    LIMIT,
    MASK,
    USED,
    first_slot,
    place,
    remove_slot,
    shard_of,
    store_at,
    stored_at,
)
from strom.kv.kernels.compile import (
    boolean,
    int32,
    int64,
    kernel,
    load_u32,
    load_u64,
    ro,
    rw,
    store_u32,
    store_u64,
    uint32,
    uint64,
    void,
)
from strom.kv.kernels.reserved_memory import CHUNK_BITS, CHUNK_MASK

CELL_BYTES: Final = 16
_BEFORE, _BEHIND = 8, 12
_FIRST: Final = 1


@kernel()
def _cell(table: Int64s, row_id: int) -> int:
    return table[row_id >> CHUNK_BITS] + (row_id & CHUNK_MASK) * CELL_BYTES  # type: ignore[no-any-return]


@kernel()
def _put_first(area: int, mask: int, row_id: int, value: Any, table: Int64s) -> bool:
    """Make a row the first of its hash's list; returns whether the list is new (the caller then counts its slot)."""
    slot = first_slot(area, mask, value)
    cell = _cell(table, row_id)
    store_u64(cell, value)
    store_u32(cell + _BEFORE, uint32(_FIRST))
    if slot < 0:
        store_u32(cell + _BEHIND, uint32(0))
        place(area, mask, value, uint32(row_id + 1))
        return True
    head = stored_at(area, slot)
    store_u32(cell + _BEHIND, head)
    store_u32(_cell(table, int64(head) - 1) + _BEFORE, uint32(row_id + 2))
    store_at(area, slot, uint32(row_id + 1))
    return False


@kernel()
def _take_out(row_id: int, shift: int, directory: Int32s, shards: Int64s, table: Int64s) -> None:
    """Remove a row from the list it is in."""
    cell = _cell(table, row_id)
    before, behind = int64(load_u32(cell + _BEFORE)), int64(load_u32(cell + _BEHIND))
    if before != _FIRST:
        store_u32(_cell(table, before - 2) + _BEHIND, uint32(behind))
        if behind != 0:
            store_u32(_cell(table, behind - 1) + _BEFORE, uint32(before))
    else:
        value = load_u64(cell)
        shard = shard_of(value, shift, directory)
        area, mask = shards[shard, AREA], shards[shard, MASK]
        slot = first_slot(area, mask, value)
        if behind != 0:
            store_u32(_cell(table, behind - 1) + _BEFORE, uint32(_FIRST))
            store_at(area, slot, uint32(behind))
        else:
            remove_slot(area, mask, slot)
            shards[shard, USED] -= 1
            shards[shard, DIRTY] = 1
    store_u32(cell + _BEFORE, uint32(0))


@kernel(int64(ro(int64), ro(uint64), int64, int64, ro(int32), rw(int64, 2), ro(int64), rw(int64)))
def link(
    row_ids: Int64s,
    hashes: Hashes,
    start: int,
    shift: int,
    directory: Int32s,
    shards: Int64s,
    table: Int64s,
    added: Int64s,
) -> int:
    """Link from ``start`` on; returns the position of the first row whose head shard is full, or the end."""
    for i in range(start, len(row_ids)):
        cell = _cell(table, row_ids[i])
        linked = load_u32(cell + _BEFORE) != 0
        if linked and load_u64(cell) == hashes[i]:
            continue
        shard = shard_of(hashes[i], shift, directory)
        if shards[shard, USED] >= shards[shard, LIMIT]:
            return i
        if linked:
            _take_out(row_ids[i], shift, directory, shards, table)
        else:
            added[0] += 1
        if _put_first(shards[shard, AREA], shards[shard, MASK], row_ids[i], hashes[i], table):
            shards[shard, USED] += 1
    return len(row_ids)


@kernel(int64(ro(int64), int64, int64, ro(int32), rw(int64, 2), ro(int64)))
def unlink(row_ids: Int64s, size: int, shift: int, directory: Int32s, shards: Int64s, table: Int64s) -> int:
    """Returns the number of rows removed from a list."""
    taken = 0
    for i in range(len(row_ids)):
        if 0 <= row_ids[i] < size and load_u32(_cell(table, row_ids[i]) + _BEFORE) != 0:
            _take_out(row_ids[i], shift, directory, shards, table)
            taken += 1
    return taken


@kernel(int64(ro(int64), ro(int64)))
def count(first: Int64s, table: Int64s) -> int:
    total = 0
    for i in range(len(first)):
        row = first[i]
        while row >= 0:
            total += 1
            row = int64(load_u32(_cell(table, row) + _BEHIND)) - 1
    return total


@kernel(void(ro(int64), ro(int64), rw(int64), rw(int64)))
def take(first: Int64s, table: Int64s, which: Int64s, row_ids: Int64s) -> None:
    total = 0
    for i in range(len(first)):
        row = first[i]
        while row >= 0 and total < len(row_ids):
            which[total], row_ids[total] = i, row
            total += 1
            row = int64(load_u32(_cell(table, row) + _BEHIND)) - 1


@kernel(void(ro(int64), int64, ro(int64), rw(uint64), rw(boolean)))
def hashes_of(row_ids: Int64s, size: int, table: Int64s, hashes: Hashes, linked: Bools) -> None:
    for i in range(len(row_ids)):
        hashes[i], linked[i] = uint64(0), False
        if 0 <= row_ids[i] < size:
            cell = _cell(table, row_ids[i])
            if load_u32(cell + _BEFORE) != 0:
                hashes[i], linked[i] = load_u64(cell), True
