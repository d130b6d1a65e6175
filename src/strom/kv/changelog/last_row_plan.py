"""The changelog of whole-row upserts where the last one wins, in one kernel.

Gives the same as ``LastRow.fold`` and ``changelog.plan`` without deletes (a test compares the two): a change is an
insert if it is its key's first and the key has no image, else an update, and every change leaves its own row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from strom.kv.arrays import Int32s, Octets
from strom.kv.kernels.compile import boolean, int32, int64, kernel, ro, rw, uint8
from strom.kv.publication import KeyGroups, Records
from strom.record.layout import CHANGE_INSERT, CHANGE_UPDATE_AFTER, CHANGE_UPDATE_BEFORE

_GROUP, _PREVIOUS, _NEWEST = range(3)
_SOURCE, _ROW = range(2)


def plan_last_row(
    groups: KeyGroups, old_source: Int32s, old_row: Int32s, images: int, *, full: bool
) -> tuple[Octets, Int32s, Int32s, Records]:
    """(kinds, source and row of each record, what publishing needs). ``images``: the source of the rows that arrived.

    ``old_source`` and ``old_row``: the places of the keys' newest records, used only if ``full``.
    """
    count = len(groups.order)
    room = 2 * count if full else count
    kinds, flags = np.empty(room, np.uint8), np.empty((2, room), np.bool_)
    where, numbers = np.empty((2, room), np.int32), np.empty((3, room), np.int64)
    records = _plan(
        groups.order, groups.starts, groups.versions, old_source, old_row, images, full, kinds, flags, where, numbers
    )  # fmt: skip
    made = Records(
        flags[0, :records],
        flags[1, :records],
        numbers[_GROUP, :records],
        numbers[_PREVIOUS, :records],
        numbers[_NEWEST, : len(groups.versions)],
    )
    return kinds[:records], where[_SOURCE, :records], where[_ROW, :records], made


@kernel(
    int64(
        ro(int64), ro(int64), ro(int64), ro(int32), ro(int32), int32, boolean, rw(uint8), rw(boolean, 2), rw(int32, 2),
        rw(int64, 2),
    )
)  # fmt: skip
def _plan(
    order: Any, starts: Any, versions: Any, old_source: Any, old_row: Any, images: int, full: bool, kinds: Any,
    flags: Any, where: Any, numbers: Any,
) -> int:  # fmt: skip
    """``flags``: stored, tombstone; ``where``: source, row; ``numbers``: group, previous, newest."""
    count = len(order)
    group_of, before = np.empty(count, np.int64), np.empty(count, np.int64)
    for group in range(len(starts) - 1):
        last = -1
        for k in range(starts[group], starts[group + 1]):
            change = order[k]
            group_of[change], before[change] = group, last
            last = change
    place = np.empty(count, np.int64)
    at = 0
    for change in range(count):
        group, last = group_of[change], before[change]
        version = versions[group]
        update = last >= 0 or (version >= 0 and version & 1 == 1)
        if update and full:
            kinds[at] = CHANGE_UPDATE_BEFORE
            if last >= 0:
                where[_SOURCE, at], where[_ROW, at] = images, last
            else:
                where[_SOURCE, at], where[_ROW, at] = old_source[group], old_row[group]
            flags[0, at], flags[1, at] = False, False
            numbers[_GROUP, at], numbers[_PREVIOUS, at] = group, -1
            at += 1
        kinds[at] = CHANGE_UPDATE_AFTER if update else CHANGE_INSERT
        where[_SOURCE, at], where[_ROW, at] = images, change
        flags[0, at], flags[1, at] = True, False
        numbers[_GROUP, at], numbers[_PREVIOUS, at] = group, place[last] if last >= 0 else -1
        place[change] = at
        numbers[_NEWEST, group] = at
        at += 1
    return at
