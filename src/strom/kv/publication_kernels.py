"""Kernels of publishing: per batch one pass over its keys and one over its records.

Small batches are common, and a pass of NumPy over a hundred keys costs as much as the work itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from strom.kv.changes import FROM_IMAGES, Bools, Bytes, Ints
from strom.kv.compile import boolean, int32, int64, kernel, ro, rw, uint8, uint64, void

Hashes = npt.NDArray[np.uint64]
Int32s = npt.NDArray[np.int32]

TOUCHED, NEW, DEAD, LIVE = 0, 1, 2, 3
COUNTS = 4


@kernel(
    void(
        ro(int64), ro(boolean), ro(int64), ro(uint64), ro(int64), int64, rw(int64), rw(uint64), rw(int64), rw(int64),
        rw(int64), rw(int64), rw(int64), rw(int64),
    )
)  # fmt: skip
def touch_keys(
    newest: Ints,
    tombstone: Bools,
    versions: Ints,
    hashes: Hashes,
    row_ids: Ints,
    base_offset: int,
    touched_ids: Ints,
    touched_hashes: Hashes,
    before: Ints,
    after: Ints,
    places: Ints,
    dead: Ints,
    live: Ints,
    counts: Ints,
) -> None:
    """The keys that a batch changes, their versions before and after, and the images that die and that live."""
    count = new = died = born = 0
    for group in range(len(newest)):
        place = newest[group]
        if place < 0:
            continue
        version = versions[group]
        touched_ids[count] = row_ids[group]
        touched_hashes[count] = hashes[group]
        places[count] = place
        before[count] = version
        if row_ids[group] < 0:
            new += 1
        if version >= 0 and version & 1:
            dead[died] = version >> 1
            died += 1
        offset = base_offset + place
        if tombstone[place]:
            after[count] = offset << 1
        else:
            after[count] = offset << 1 | 1
            live[born] = offset
            born += 1
        count += 1
    counts[TOUCHED], counts[NEW], counts[DEAD], counts[LIVE] = count, new, died, born


@kernel(
    int64(
        ro(boolean), ro(int64), ro(int64), ro(boolean), ro(int64), int64, rw(int64), rw(int64)
    )
)  # fmt: skip
def earlier_versions(
    stored: Bools,
    previous: Ints,
    group: Ints,
    tombstone: Bools,
    versions: Ints,
    base_offset: int,
    offsets: Ints,
    earlier: Ints,
) -> int:
    """Per stored record its offset and its key's previous record, in this batch or before it; how many there are."""
    count = 0
    for place in range(len(stored)):
        if not stored[place]:
            continue
        offsets[count] = base_offset + place
        last = previous[place]
        if last < 0:
            earlier[count] = versions[group[place]]
        else:
            earlier[count] = (base_offset + last) << 1 | (0 if tombstone[last] else 1)
        count += 1
    return count


@kernel(void(ro(uint8), ro(int64), ro(int32), ro(int32), int32, rw(int32), rw(int32)))
def place_records(
    from_: Bytes,
    row: Ints,
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
