"""The arithmetic of a join for many join keys at once: which rows pair up, and how two results differ. Pure.

Rows and join keys (``group``) are positions. ``pairs`` is the join of every group; ``difference`` is what to write and
delete so that a table with the old rows holds the new ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from strom.spark.joins.definition import How
from strom.spark.joins.key_bytes import Positions

NONE = -1


class Pairs(NamedTuple):
    """Rows of the result: positions of the left and the right row, ``NONE`` for a missing one."""

    group: Positions
    left: Positions
    right: Positions


def pairs(left: Positions, right: Positions, groups: int, how: How) -> Pairs:
    """The join of every group; ``left`` and ``right`` hold the group of each row."""
    in_left, in_right = np.bincount(left, minlength=groups), np.bincount(right, minlength=groups)
    by_left, by_right = _ordered(left), _ordered(right)
    begins = np.cumsum(in_right) - in_right
    group = left[by_left]
    partners = in_right[group]
    lefts = np.repeat(by_left, partners)
    # Counts 0, 1, 2 … within the partners of each left row.
    within = np.arange(len(lefts)) - np.repeat(np.cumsum(partners) - partners, partners)
    rights = by_right[np.repeat(begins[group], partners) + within]
    parts = [Pairs(np.repeat(group, partners), lefts, rights)]
    if how in ("left", "full"):
        alone = by_left[partners == 0]
        parts.append(Pairs(left[alone], alone, np.full(len(alone), NONE)))
    if how in ("right", "full"):
        alone = by_right[in_left[right[by_right]] == 0]
        parts.append(Pairs(right[alone], np.full(len(alone), NONE), alone))
    kept = [one for one in parts if len(one.group)]
    if len(kept) <= 1:
        return kept[0] if kept else parts[0]
    return Pairs(*(np.concatenate(column) for column in zip(*kept, strict=True)))


def portions(sizes: Positions, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of groups with at most ``most`` rows in total; a larger group is a range alone."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield start, end
        start = end


def first_places(codes: Positions) -> Positions:
    """Where each code of a dictionary-encoded column occurs first."""
    # Codes are assigned in the order of appearance: a new one is larger than all before.
    return np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1) > 0)


def take_places(rows: Positions) -> pa.Int64Array:
    """Positions for Arrow's ``take``: ``NONE`` becomes NULL."""
    none = rows == NONE
    return pa.array(rows, mask=none) if none.any() else pa.array(rows)


def _ordered(groups: Positions) -> Positions:
    """Positions in the order of their groups."""
    if not len(groups) or (groups[1:] >= groups[:-1]).all():
        return np.arange(len(groups))
    return np.argsort(groups, kind="stable")


class PairRows(NamedTuple):
    """Rows of a result: group, keys of both rows (empty for none), columns."""

    group: Positions
    left: pa.BinaryArray
    right: pa.BinaryArray
    columns: Sequence[pa.Array]


class Difference(NamedTuple):
    """Positions of new rows to write and of old rows to delete."""

    write: Positions
    delete: Positions


def difference(new: PairRows, old: PairRows) -> Difference:
    """What turns the old rows into the new ones; equal rows stay."""
    if not len(old.group):
        return Difference(np.arange(len(new.group)), np.empty(0, np.int64))
    if not len(new.group):
        return Difference(np.empty(0, np.int64), np.arange(len(old.group)))
    found = pc.index_in(_names(new), value_set=_names(old))
    known = found.is_valid().to_numpy(zero_copy_only=False)
    places = pc.fill_null(found, NONE).to_numpy(zero_copy_only=False).astype(np.int64)
    gone = np.ones(len(old.group), bool)
    gone[places[known]] = False
    return Difference(np.flatnonzero(~known | _changed(new, old, known, places)), np.flatnonzero(gone))


def _names(rows: PairRows) -> pa.BinaryArray:
    """An identity for every row: equal for the same group and keys."""
    place = np.empty((len(rows.group), 2), "<i8")
    place[:, 0] = rows.group
    # The length marks the end of the left key: without it (k, none) and (none, k) would be equal.
    place[:, 1] = pc.binary_length(rows.left).to_numpy(zero_copy_only=False)
    offsets = np.arange(len(place) + 1, dtype=np.int32) * np.int32(16)
    front = pa.Array.from_buffers(pa.binary(), len(place), [None, pa.py_buffer(offsets), pa.py_buffer(place)])
    return pc.binary_join_element_wise(front, rows.left, rows.right, b"")


def _changed(
    new: PairRows, old: PairRows, known: npt.NDArray[np.bool_], places: Positions
) -> npt.NDArray[np.bool_]:
    """Which of the new rows existed before with other values."""
    changed = np.zeros(len(new.group), bool)
    mine = np.flatnonzero(known)
    if not len(mine):
        return changed
    theirs = pa.array(places[mine])
    mine_taken = None if len(mine) == len(known) else pa.array(mine)
    for one, other in zip(new.columns, old.columns, strict=True):
        ours = one if mine_taken is None else one.take(mine_taken)
        changed[mine] |= _different(ours, other.take(theirs))
    return changed


def _different(one: pa.Array, other: pa.Array) -> npt.NDArray[np.bool_]:
    if pa.types.is_nested(one.type):
        return np.ones(len(one), bool)  # Arrow cannot compare them; writing a row again is harmless
    same = pc.fill_null(pc.equal(one, other), False)
    if one.null_count and other.null_count:
        same = pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(other)))
    different: npt.NDArray[np.bool_] = ~same.to_numpy(zero_copy_only=False)
    return different
