"""Epochs of a changelog whose oldest segments are gone: the log forgets them, the manifest keeps those still needed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from strom.kv.snapshot.manifest import EpochRef
from strom.log.layout import NO_EPOCH


def epoch_of(epochs: Sequence[EpochRef], offset: int) -> int:
    """The epoch that gave ``offset`` its record, NO_EPOCH when none did."""
    index = bisect_right(epochs, offset, key=lambda one: one.start)
    return epochs[index - 1].epoch if index and offset >= 0 else NO_EPOCH


def epochs_between(epochs: Sequence[EpochRef], start: int, end: int) -> tuple[EpochRef, ...]:
    """The epochs of the records from ``start`` - 1 to ``end`` - 1."""
    known = [one for one in epochs if one.start < end]
    while len(known) > 1 and known[1].start < start:
        del known[0]
    return tuple(known)
