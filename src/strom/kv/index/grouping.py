"""The rows of one batch by key: which rows are changes of the same key, in the order they came.

Rows are grouped by hash in one pass over a small table. Where keys may share a hash, all rows are then compared with
the first row of their group, in one call. Rows that differ are grouped again among themselves, until none does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from strom.kv.arrays import Bools, Hashes, Int64s
from strom.kv.kernels.compile import int64, kernel, ro, rw, uint64, void

SameWithin = Callable[[Int64s, Int64s], Bools]
"""(rows, other rows) of the batch -> whether the two have the same key."""


class Order(NamedTuple):
    """Rows by key: group g is ``order[starts[g]:starts[g + 1]]``. Groups and their rows are in order of arrival."""

    order: Int64s
    starts: Int64s


def group(hashes: Hashes, same_within: SameWithin | None) -> Order:
    """Group the rows of a batch by key; ``same_within`` None: equal hashes are equal keys."""
    hashes = np.ascontiguousarray(hashes, np.uint64)
    count = len(hashes)
    first = np.empty(count, np.int64)
    groups = first_with_hash(hashes, first)
    if same_within is not None and groups < count:
        groups += _part_different(hashes, first, same_within)
    order, starts = np.empty(count, np.int64), np.empty(groups + 1, np.int64)
    sort_groups(first, order, starts)
    return Order(order, starts)


def _part_different(hashes: Hashes, first: Int64s, same_within: SameWithin) -> int:
    """Put rows whose key differs from their group's first row into new groups; returns the number of new groups."""
    added = 0
    which = np.flatnonzero(first != np.arange(len(first)))
    while len(which):
        which = which[~same_within(which, first[which])]
        if len(which):
            heads = np.empty(len(which), np.int64)
            added += first_with_hash(hashes[which], heads)
            first[which] = which[heads]
            which = which[first[which] != which]
    return added


@kernel(int64(ro(uint64), rw(int64)))
def first_with_hash(hashes: Hashes, first: Int64s) -> int:
    """For each row the first row with its hash; returns the number of distinct hashes."""
    count, size = len(hashes), 2
    while size < 2 * count:
        size *= 2
    table = np.zeros(size, np.int32)
    groups = 0
    for row in range(count):
        slot = int64(hashes[row] >> uint64(20)) & (size - 1)
        while table[slot] != 0 and hashes[table[slot] - 1] != hashes[row]:
            slot = (slot + 1) & (size - 1)
        if table[slot] == 0:
            table[slot] = row + 1
            groups += 1
        first[row] = table[slot] - 1
    return groups


@kernel(void(rw(int64), rw(int64), rw(int64)))
def sort_groups(first: Int64s, order: Int64s, starts: Int64s) -> None:
    """Counting sort of rows by their group's first row; ``first`` is used up."""
    starts[:] = 0
    groups = 0
    for row in range(
        len(first)
    ):  # the group's number replaces its first row; that row comes first, so it is known
        if first[row] == row:
            first[row] = groups
            groups += 1
        else:
            first[row] = first[first[row]]
        starts[first[row] + 1] += 1
    for number in range(groups):
        starts[number + 1] += starts[number]
    for row in range(len(first)):
        order[starts[first[row]]] = row
        starts[first[row]] += 1
    for number in range(groups, 0, -1):
        starts[number] = starts[number - 1]
    starts[0] = 0
