"""Which base files to merge: a decision over facts, without files.

Two reasons. *Dead rows*: a file with enough dead rows is rewritten without them; only rows that died before the horizon
can go, so it waits until the horizon has passed the end the store had when the file was written. *Many files*:
neighbours of similar size become one, so that their number grows with the logarithm of the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from strom.kv.rows.rows import FileFacts

SIZE_RATIO: Final = 4
"""Neighbours are of similar size when the largest is at most this many times the smallest."""


class MergeRange(NamedTuple):
    """Base files [first, last) become one."""

    first: int
    last: int


def choose_merge(
    files: Sequence[FileFacts],
    *,
    settled: Mapping[str, int],
    horizon: int,
    dead_share: float,
    files_max: int,
) -> MergeRange | None:
    """The next merge, or None. ``settled``: per file the end of the store when it was written."""
    for number, file in enumerate(files):
        dead = file.rows - file.live
        if dead and dead >= dead_share * file.rows and settled.get(file.path, 0) <= horizon:
            # A neighbour that is mostly dead too goes along.
            last = number + 1
            while last < len(files) and _worth(files[last], settled, horizon, dead_share):
                last += 1
            return MergeRange(number, last)
    return _run_of_one_size(files, files_max)


def _worth(file: FileFacts, settled: Mapping[str, int], horizon: int, dead_share: float) -> bool:
    dead = file.rows - file.live
    return dead >= dead_share * file.rows and settled.get(file.path, 0) <= horizon


def _run_of_one_size(files: Sequence[FileFacts], files_max: int) -> MergeRange | None:
    for first in range(len(files)):
        smallest = largest = max(files[first].bytes, 1)
        last = first + 1
        while last < len(files):
            size = max(files[last].bytes, 1)
            if max(largest, size) > SIZE_RATIO * min(smallest, size):
                break
            smallest, largest = min(smallest, size), max(largest, size)
            last += 1
        if last - first >= files_max:
            return MergeRange(first, last)
    return None
