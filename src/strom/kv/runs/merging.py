"""Which runs of a tile become one, and the result.

A tile is its base run and at most ``SMALL_RUNS`` newer ones. They become one when there are too many of them, or when
the newer ones together have more than a quarter of the base: an entry is then written about five times, and a hash is
looked for in at most nine places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from strom.kv.arrays import Hashes, Int64s
from strom.kv.runs import run_kernels as kernels
from strom.kv.runs.run import IndexRun

SMALL_RUNS: Final = 8
BASE_SHARE: Final = 4
"""Merge when the newer runs together have more than 1/BASE_SHARE of the base."""
TILE_ENTRIES: Final = 1 << 20
"""A base run with more entries is cut into two tiles."""
DEPTH_MAX: Final = 24
"""Keys that need more tiles agree in the first bits of their hashes: their tile grows."""

Entries = tuple[Hashes, Int64s]


def is_merge_due(runs: Sequence[IndexRun], added: int) -> bool:
    """Whether a tile, the oldest run first, is merged rather than given one more run of ``added`` entries."""
    if not runs:
        return True
    small = sum(run.ref.entries for run in runs[1:]) + added
    return len(runs) > SMALL_RUNS or small * BASE_SHARE > runs[0].ref.entries


def merged(runs: Sequence[IndexRun], newest: Entries) -> Entries:
    """The entries of runs, the oldest first, and of what is newer than all of them; hashes that are gone left out."""
    found = np.empty(0, np.uint64), np.empty(0, np.int64)
    for run in runs:
        found = merge_two(found, run.entries(), drop=True)
    return merge_two(found, newest, drop=True)


def merge_two(old: Entries, new: Entries, *, drop: bool) -> Entries:
    """One run of two."""
    room = len(old[0]) + len(new[0])
    hashes, versions = np.empty(room, np.uint64), np.empty(room, np.int64)
    count = kernels.merge_newer(*old, *new, hashes, versions, drop)
    return hashes[:count], versions[:count]


def cut(prefix: int, depth: int, entries: Entries, most: int) -> list[tuple[int, int, Entries]]:
    """A tile in pieces of at most ``most`` entries: (prefix, depth, entries), covering its hashes."""
    hashes, versions = entries
    if len(hashes) <= most or depth >= DEPTH_MAX:
        return [(prefix, depth, entries)]
    left = prefix * 2
    middle = int(np.searchsorted(hashes, np.uint64((left + 1) << (63 - depth))))
    return [
        *cut(left, depth + 1, (hashes[:middle], versions[:middle]), most),
        *cut(left + 1, depth + 1, (hashes[middle:], versions[middle:]), most),
    ]
