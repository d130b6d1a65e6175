"""What was fetched of remote segments and will probably be asked for: columns of extents, within a bound of memory.

A read takes a slice of some megabytes; a request to the store is worth its time for whole columns of an extent. So
what a reader goes on to read is fetched with what it reads now, and kept here until newer things need the room.
Belongs to one loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import NamedTuple

from strom.runtime.files import Bytes


class ExtentKey(NamedTuple):
    """An extent of a segment. Names of segments are never used twice."""

    folder: str
    segment: str
    number: int


class HeldExtent:
    """What is here of one extent: bytes by (number of the batch, column)."""

    def __init__(self) -> None:
        self.pieces: dict[tuple[int, int], Bytes] = {}
        self.size = 0
        self.fetching = asyncio.Lock()


class ExtentMemory:
    """Extents, the one not used for longest gives way."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._held: OrderedDict[ExtentKey, HeldExtent] = OrderedDict()
        self.size = 0

    def of(self, key: ExtentKey) -> HeldExtent:
        """What is here of an extent; it is used now."""
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = HeldExtent()
        self._held.move_to_end(key)
        return held

    def add(self, key: ExtentKey, held: HeldExtent, pieces: dict[tuple[int, int], memoryview]) -> None:
        """More of an extent; others give way."""
        size = sum(map(len, pieces.values()))
        held.pieces |= pieces
        held.size += size
        if self._held.get(key) is not held:
            return  # it gave way meanwhile: whoever fetched it still has it
        self.size += size
        while self.size > self._bytes_max and len(self._held) > 1:
            oldest, gone = next(iter(self._held.items()))
            if gone is held:
                self._held.move_to_end(oldest)
                continue
            del self._held[oldest]
            self.size -= gone.size

    def forget(self, key: ExtentKey) -> None:
        """Fetch an extent anew: something in it was not what was written."""
        gone = self._held.pop(key, None)
        if gone is not None:
            self.size -= gone.size
