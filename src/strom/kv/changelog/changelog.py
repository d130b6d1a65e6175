"""The changelog batch of one batch of changes: which records, of what kind, and where each row comes from.

Rules
    1. Records are in the order in which the changes arrived. A change without effect leaves no record.
    2. FULL: an update is two records, -U with the row before and +U with the row after. WAL: only +U.
    3. A delete is -D with the row before, in both forms.
    4. The row before is the group's old image, or the image of the previous effective change to the same key.
    5. If no change has an effect, the batch is empty. It still takes one offset, as in the peer, so that the writer's
       sequence is in the log and a repeated batch is recognized.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from strom.kv.arrays import Bools, Int64s, Octets
from strom.kv.changes import (
    DELETE,
    FROM_IMAGES,
    FROM_OLD,
    INSERT,
    NOTHING,
    UPDATE,
    ChangelogPlan,
    Changes,
    Folded,
)
from strom.kv.kernels.compile import boolean, int64, kernel, ro, rw, uint8
from strom.record.layout import CHANGE_DELETE, CHANGE_INSERT, CHANGE_UPDATE_AFTER, CHANGE_UPDATE_BEFORE

Image = Literal["FULL", "WAL"]

_OLD: Final = -1


def plan(changes: Changes, folded: Folded, image: Image) -> ChangelogPlan:
    """The records for the effects of a batch."""
    full = image == "FULL"
    n, groups = len(folded.effect), changes.groups
    room = n + (int(np.count_nonzero(folded.effect == UPDATE)) if full else 0)
    kinds, from_ = np.empty(room, np.uint8), np.empty(room, np.uint8)
    row, arrival = np.empty(room, np.int64), np.empty(room, np.int64)
    group, previous = np.empty(room, np.int64), np.empty(room, np.int64)
    stored = np.empty(room, np.bool_)
    newest = np.full(groups, -1, np.int64)
    records = _plan(
        folded.effect, folded.image_row, changes.order, changes.starts, full, kinds, from_, row, arrival, group,
        stored, previous, newest,
    )  # fmt: skip
    return ChangelogPlan(
        kinds[:records],
        from_[:records],
        row[:records],
        arrival[:records],
        group[:records],
        stored[:records],
        previous[:records],
        newest,
    )


@kernel(
    int64(
        ro(uint8), ro(int64), ro(int64), ro(int64), boolean, rw(uint8), rw(uint8), rw(int64), rw(int64), rw(int64),
        rw(boolean), rw(int64), rw(int64),
    )
)  # fmt: skip
def _plan(
    effect: Octets,
    image_row: Int64s,
    order: Int64s,
    starts: Int64s,
    full: bool,
    kinds: Octets,
    from_: Octets,
    row: Int64s,
    arrival: Int64s,
    group: Int64s,
    stored: Bools,
    previous: Int64s,
    newest: Int64s,
) -> int:
    n = len(effect)
    before = np.empty(n, np.int64)  # row of the images before the change, or _OLD
    last = np.empty(n, np.int64)  # the previous effective change to the same key
    groups_of = np.empty(n, np.int64)
    place = np.empty(n, np.int64)
    for j in range(len(starts) - 1):
        image, change = _OLD, -1
        for k in range(starts[j], starts[j + 1]):
            a = order[k]
            groups_of[a] = j
            if effect[a] != NOTHING:
                before[a] = image
                last[a] = change
                image, change = image_row[a], a
    at = 0
    for a in range(n):
        what = effect[a]
        if what == NOTHING:
            continue
        j = groups_of[a]
        pair = what == UPDATE and full
        if pair or what == DELETE:
            from_[at] = FROM_OLD if before[a] == _OLD else FROM_IMAGES
            row[at] = j if before[a] == _OLD else before[a]
            kinds[at] = CHANGE_UPDATE_BEFORE if pair else CHANGE_DELETE
            arrival[at] = a
            group[at] = j
            previous[at] = -1
            stored[at] = not pair
            at += 1
        if what != DELETE:
            kinds[at] = CHANGE_INSERT if what == INSERT else CHANGE_UPDATE_AFTER
            from_[at] = FROM_IMAGES
            row[at] = image_row[a]
            arrival[at] = a
            group[at] = j
            stored[at] = True
            at += 1
        place[a] = at - 1
        previous[at - 1] = place[last[a]] if last[a] >= 0 else -1
        newest[j] = at - 1
    return at
