"""Kernels for an index that is partly on disk: which keys are in memory, which were used, which may leave.

The mark of a row id is a small number: how recently its key was asked for. ``HELD`` keys do not leave.
"""

from __future__ import annotations

from typing import Any, Final

from strom.kv.arrays import Hashes, Int32s, Int64s, Octets
from strom.kv.index.newest_kernels import version_of
from strom.kv.index.slot_kernels import (
    AREA,
    MASK,
    USED,
    VALUES_AT,
    first_slot,
    next_slot,
    remove_slot,
    shard_of,
    stored_at,
)
from strom.kv.kernels.compile import (
    int32,
    int64,
    kernel,
    load_u32,
    load_u64,
    ro,
    rw,
    uint8,
    uint64,
    void,
)

MARK_MAX: Final = 3
HELD: Final = 255


@kernel()
def is_among(value: Any, rising: Hashes) -> bool:
    low, high = 0, len(rising)
    while low < high:
        middle = (low + high) >> 1
        if rising[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low < len(rising) and rising[low] == value


@kernel(int64(ro(uint64), ro(uint64), int64, ro(int32), ro(int64, 2), rw(uint8), rw(int64)))
def list_unknown(
    hashes: Hashes,
    changed: Hashes,
    shift: int,
    directory: Int32s,
    shards: Int64s,
    marks: Octets,
    unknown: Int64s,
) -> int:
    """List the positions of hashes about which memory cannot answer; mark the others as used. Returns their number."""
    count = 0
    for i in range(len(hashes)):
        shard = shard_of(hashes[i], shift, directory)
        area, mask = shards[shard, AREA], shards[shard, MASK]
        slot = first_slot(area, mask, hashes[i])
        if slot < 0:
            if not is_among(hashes[i], changed):
                unknown[count] = i
                count += 1
            continue
        while slot >= 0:
            row_id = int64(stored_at(area, slot)) - 1
            if marks[row_id] < MARK_MAX:
                marks[row_id] += uint8(1)
            slot = next_slot(area, mask, hashes[i], slot)
    return count


@kernel(void(ro(int64), uint8, rw(uint8)))
def mark_all(row_ids: Int64s, value: Any, marks: Octets) -> None:
    """Set the marks of row ids; -1 is skipped."""
    for i in range(len(row_ids)):
        if row_ids[i] >= 0:
            marks[row_ids[i]] = value


@kernel()
def _may_leave(area: int, mask: int, value: Any, limit: int, newest: Int64s, marks: Octets) -> bool:
    """Whether all keys with this hash are as the disk has them, and none was used lately."""
    slot = first_slot(area, mask, value)
    while slot >= 0:
        row_id = int64(stored_at(area, slot)) - 1
        version = version_of(newest, row_id)
        if version < 0 or version >= limit or marks[row_id] != 0:
            return False
        slot = next_slot(area, mask, value, slot)
    return True


@kernel(int64(int64, rw(int64, 2), ro(uint64), int64, ro(int64), rw(uint8), rw(int64)))
def sweep(
    shard: int, shards: Int64s, changed: Hashes, limit: int, newest: Int64s, marks: Octets, row_ids: Int64s
) -> int:
    """Remove the keys of a shard that may leave, and age the marks of the others. Returns their number.

    ``limit``: versions below it are on disk, but for the hashes that ``changed``. ``row_ids``: of those that left.
    """
    area, mask = shards[shard, AREA], shards[shard, MASK]
    count = 0
    slot = 0
    while slot <= mask:
        stored = int64(load_u32(area + VALUES_AT + slot * 4))
        if stored == 0:
            slot += 1
            continue
        row_id, value = stored - 1, load_u64(area + slot * 8)
        if _may_leave(area, mask, value, limit, newest, marks) and not is_among(value, changed):
            remove_slot(area, mask, slot)  # another key may be in the slot now: it is looked at next
            shards[shard, USED] -= 1
            row_ids[count] = row_id
            count += 1
            continue
        if 0 < marks[row_id] < HELD:
            marks[row_id] -= uint8(1)
        slot += 1
    return count
