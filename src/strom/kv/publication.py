"""What one changelog batch does to the store, and how it is undone.

A :class:`Publication` says, for every key a batch touches, which record was its newest before and which is after. It
comes from the write pass or, at recovery, from the batch itself; publishing treats both alike.

A :class:`BatchUndo` is kept in memory for every batch that readers do not see yet. Lookups use it to find rows that
left a secondary list above the high watermark, truncation uses it to restore the state before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from strom.kv.arrays import Bools, Hashes, Int64s, Octets
from strom.kv.changes import ChangelogPlan
from strom.record.layout import CHANGE_DELETE, CHANGE_UPDATE_BEFORE


class KeyGroups(NamedTuple):
    """The distinct keys of one batch, and what the store knew about them before it."""

    order: Int64s
    starts: Int64s
    hashes: Hashes
    """Per group."""
    row_ids: Int64s
    """Per group; -1 for an unknown key."""
    versions: Int64s
    """Per group: the newest record before the batch, or NONE."""


class Records(NamedTuple):
    """The records of one changelog batch by key. Positions count within the batch."""

    stored: Bools
    tombstone: Bools
    group: Int64s
    """Of every record; meaningless for records that are not stored."""
    previous: Int64s
    """For stored records, the position of the key's previous stored record in this batch, or -1."""
    newest: Int64s
    """Per group, the position of its last stored record, or -1."""

    @classmethod
    def of_plan(cls, plan: ChangelogPlan) -> Records:
        """As the write pass planned them."""
        return cls(plan.stored, plan.kinds == CHANGE_DELETE, plan.group, plan.previous, plan.newest)


class Publication(NamedTuple):
    """One batch, ready to be published."""

    groups: KeyGroups
    records: Records


class ListUndo(NamedTuple):
    """The tuple hashes a list had for the rows of one batch before it."""

    hashes: Hashes
    linked: Bools


class BatchUndo(NamedTuple):
    """What one batch replaced: parallel arrays, one entry per key it touched."""

    base_offset: int
    end_offset: int
    row_ids: Int64s
    hashes: Hashes
    before: Int64s
    after: Int64s
    lists: Mapping[str, ListUndo]


def stored_of(kinds: Octets) -> Bools:
    """Which records of a changelog batch become their key's newest: all but the -U of a pair."""
    stored: Bools = kinds != CHANGE_UPDATE_BEFORE
    return stored


def records_from_groups(kinds: Octets, stored_at: Int64s, order: Int64s, starts: Int64s) -> Records:
    """The records of a batch as the log holds it. Stored ones are at ``stored_at``; ``order`` groups those."""
    count, groups = len(kinds), len(starts) - 1
    stored = np.zeros(count, np.bool_)
    stored[stored_at] = True
    places = stored_at[order]
    sizes = np.diff(starts)
    group = np.zeros(count, np.int64)
    group[places] = np.repeat(np.arange(groups, dtype=np.int64), sizes)
    previous = np.full(count, -1, np.int64)
    before = np.empty_like(places)
    before[1:] = places[:-1]
    before[starts[:-1]] = -1
    previous[places] = before
    return Records(stored, kinds == CHANGE_DELETE, group, previous, places[starts[1:] - 1])
