"""Kernels of publishing: per batch one pass over its keys and one over its records.

Small batches are common, and a pass of NumPy over a hundred keys costs as much as the work itself.
"""

from __future__ import annotations

from typing import Any

from strom.kv.arrays import Int32s, Int64s, Octets
from strom.kv.changes import FROM_IMAGES
from strom.kv.kernels.compile import boolean, int32, int64, kernel, ro, rw, uint8, uint64, void

TOUCHED, NEW, DEAD_COUNT, LIVE_COUNT, STORED = range(5)
COUNTS = 5
#: Per key that a batch changes: its row id, its version before and after, and its newest record. Then, each with a
#: count of its own, the offsets of images that die and of those that live.
IDS, BEFORE, AFTER, PLACES, DEAD, LIVE = range(6)
KEY_FIELDS = 6


@kernel()
def _touch_keys(
    newest: Any, tombstone: Any, versions: Any, hashes: Any, row_ids: Any, base_offset: Any, keys: Any,
    key_hashes: Any, counts: Any,
) -> None:  # fmt: skip
    count = new = died = born = 0
    for group in range(len(newest)):
        place = newest[group]
        if place < 0:
            continue
        version = versions[group]
        keys[IDS, count] = row_ids[group]
        keys[PLACES, count] = place
        keys[BEFORE, count] = version
        key_hashes[count] = hashes[group]
        if row_ids[group] < 0:
            new += 1
        if version >= 0 and version & 1:
            keys[DEAD, died] = version >> 1
            died += 1
        offset = base_offset + place
        if tombstone[place]:
            keys[AFTER, count] = offset << 1
        else:
            keys[AFTER, count] = offset << 1 | 1
            keys[LIVE, born] = offset
            born += 1
        count += 1
    counts[TOUCHED], counts[NEW], counts[DEAD_COUNT], counts[LIVE_COUNT] = count, new, died, born


@kernel(
    void(
        ro(boolean), ro(boolean), ro(int64), ro(int64), ro(int64), ro(int64), ro(uint64), ro(int64), int64,
        rw(int64, 2), rw(uint64), rw(int64, 2), rw(int64),
    )
)  # fmt: skip
def prepare(
    stored: Any, tombstone: Any, group: Any, previous: Any, newest: Any, versions: Any, hashes: Any, row_ids: Any,
    base_offset: int, keys: Any, key_hashes: Any, earlier: Any, counts: Any,
) -> None:  # fmt: skip
    """What publishing a batch at ``base_offset`` will change.

    ``keys`` and ``key_hashes``: per changed key (``IDS`` and so on). ``earlier``: per stored record its offset, and the
    version of its key before it, in this batch or older. ``counts``: the number of each.
    """
    _touch_keys(newest, tombstone, versions, hashes, row_ids, base_offset, keys, key_hashes, counts)
    count = 0
    for place in range(len(stored)):
        if not stored[place]:
            continue
        earlier[0, count] = base_offset + place
        last = previous[place]
        if last < 0:
            earlier[1, count] = versions[group[place]]
        else:
            earlier[1, count] = (base_offset + last) << 1 | (0 if tombstone[last] else 1)
        count += 1
    counts[STORED] = count


@kernel(void(ro(uint8), ro(int64), ro(int32), ro(int32), int32, rw(int32), rw(int32)))
def place_records(
    from_: Octets,
    row: Int64s,
    old_source: Int32s,
    old_row: Int32s,
    images: int,
    source_out: Int32s,
    row_out: Int32s,
) -> None:
    """Where each record's row lies: among the old images, by group, or in the source of new images."""
    for record in range(len(from_)):
        if from_[record] == FROM_IMAGES:
            source_out[record] = images
            row_out[record] = row[record]
        else:
            source_out[record] = old_source[row[record]]
            row_out[record] = old_row[row[record]]
