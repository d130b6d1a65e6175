"""Which requests to make for many parts of an object: few enough to be quick, and not much more than was asked for.

Parts that lie close together are fetched by one request, with what lies between them, as long as the whole request
stays within a bound of waste. What is long is split, so that several connections move it: a single one is slower than
a disk.

Pure: positions in, requests out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

KIB = 1024
MIB = 1024 * KIB

PART_BYTES = 4 * MIB


class Part(NamedTuple):
    """Bytes of an object that somebody wants."""

    position: int
    length: int

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.position + self.length


class Coalescing(NamedTuple):
    """When two parts become one request."""

    gap_bytes: int
    """At most so much lies between them."""
    waste_max: float
    """A request moves at most this many times the bytes that were asked for."""


UNFILTERED = Coalescing(64 * KIB, 1.25)
"""Whole columns: they lie together, and what lies between two of them is short."""
FILTERED = Coalescing(256 * KIB, 4.0)
"""Columns of some batches: many short parts, where a request costs more than what lies between."""


class Fetch(NamedTuple):
    """One request."""

    position: int
    length: int

    @property
    def end(self) -> int:
        """Where it ends."""
        return self.position + self.length


def plan(
    parts: Sequence[Part], coalescing: Coalescing = UNFILTERED, part_bytes: int = PART_BYTES
) -> list[Fetch]:
    """The requests that bring all parts, in order of position.

    Each byte is fetched once at most, whatever overlaps; every part of some length lies within requests that touch.
    """
    runs: list[list[int]] = []  # start, end, bytes asked for
    for part in sorted(part for part in parts if part.length > 0):
        if part.position < 0:
            raise ValueError(f"no part begins at {part.position}")
        if runs:
            run = runs[-1]
            new = max(part.end - max(part.position, run[1]), 0)
            gap = part.position - run[1]
            wasteful = max(part.end, run[1]) - run[0] > coalescing.waste_max * (run[2] + new)
            if gap <= 0 or (gap <= coalescing.gap_bytes and not wasteful):
                run[1] = max(run[1], part.end)
                run[2] += new
                continue
        runs.append([part.position, part.end, part.length])
    return [fetch for start, end, _ in runs for fetch in _split(start, end, part_bytes)]


def _split(start: int, end: int, part_bytes: int) -> list[Fetch]:
    """Pieces of about the same size, none larger than ``part_bytes``."""
    count = -(-(end - start) // part_bytes)
    edges = [start + (end - start) * number // count for number in range(count + 1)]
    return [Fetch(low, high - low) for low, high in itertools.pairwise(edges)]
