"""The fingerprint of a set of offsets: their number, and the sum of their hashes.

Every commit keeps it for each bucket, so that what other engines made of the files can be compared with what Strom
wrote, even after the old files are gone. Added, removed and duplicated rows change it; their order, and the files they
are in, do not. Prints of parts add up, so that a commit costs what it changes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]

PIECE = 1 << 20
"""Offsets hashed at a time: numpy's intermediate arrays stay in the cache."""
_WORD = 1 << 64


class OffsetPrint(NamedTuple):
    """The print of ``rows`` offsets; ``total`` is the sum of their hashes, modulo 2^64."""

    rows: int = 0
    total: int = 0

    def plus(self, more: OffsetPrint) -> OffsetPrint:
        """The print of both sets together."""
        return OffsetPrint(self.rows + more.rows, (self.total + more.total) % _WORD)

    def minus(self, gone: OffsetPrint) -> OffsetPrint:
        """The print without these offsets."""
        return OffsetPrint(self.rows - gone.rows, (self.total - gone.total) % _WORD)


def print_of(offsets: Offsets) -> OffsetPrint:
    """The print of these offsets, in any order."""
    total = 0
    for start in range(0, len(offsets), PIECE):
        total += int(_hashed(offsets[start : start + PIECE]).sum(dtype=np.uint64))
    return OffsetPrint(len(offsets), total % _WORD)


def print_between(start: int, end: int) -> OffsetPrint:
    """The print of all offsets in [start, end)."""
    found = OffsetPrint()
    for first in range(start, end, PIECE):
        found = found.plus(print_of(np.arange(first, min(first + PIECE, end), dtype=np.int64)))
    return found


def _hashed(offsets: Offsets) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of each offset: the finalizer of SplitMix64."""
    found: npt.NDArray[np.uint64] = offsets.astype(np.uint64)
    found += np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found ^= found >> np.uint64(shift)
        found *= np.uint64(factor)
    found ^= found >> np.uint64(31)
    return found
