"""Reads many parts of an object at once: by a plan, on several connections, within a budget that all readers share."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

from strom.errors import TornBatch
from strom.runtime.objects.range_plan import PART_BYTES, UNFILTERED, Coalescing, Fetch, Part, plan

IN_FLIGHT_MAX = 16
IN_FLIGHT_OF_A_READER = 4


class RangeCosts(NamedTuple):
    """What reading has cost."""

    requests: int
    moved: int
    """Bytes that came."""
    wanted: int
    """Bytes that were asked for."""


class RangeBudget:
    """How many requests may be under way, of all readers together, and how large. Belongs to one event loop."""

    def __init__(
        self,
        in_flight_max: int = IN_FLIGHT_MAX,
        *,
        part_bytes: int = PART_BYTES,
        gap_bytes: int = UNFILTERED.gap_bytes,
    ) -> None:
        """``part_bytes``: what is longer is split. ``gap_bytes``: between whole columns; of other plans in
        proportion."""
        self.turns = asyncio.Semaphore(in_flight_max)
        self.part_bytes = part_bytes
        self._gap_scale = gap_bytes / UNFILTERED.gap_bytes

    def scaled(self, coalescing: Coalescing) -> Coalescing:
        """With gaps as this budget has them."""
        return coalescing._replace(gap_bytes=int(coalescing.gap_bytes * self._gap_scale))


class PartSource(Protocol):
    """What gives parts of objects: a store, or something in front of it."""

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``position``; fewer only at the object's end."""


class RangeReader:
    """One reader of parts."""

    def __init__(
        self, objects: PartSource, budget: RangeBudget, in_flight_max: int = IN_FLIGHT_OF_A_READER
    ) -> None:
        self._objects = objects
        self._budget = budget
        self._mine = asyncio.Semaphore(in_flight_max)
        self._requests = self._moved = self._wanted = 0

    @property
    def costs(self) -> RangeCosts:
        """Of all that it has read so far."""
        return RangeCosts(self._requests, self._moved, self._wanted)

    async def read(
        self, key: str, parts: Sequence[Part], coalescing: Coalescing = UNFILTERED
    ) -> list[memoryview]:
        """The bytes of each part, in the order asked for. An object that ends before a part does is a TornBatch."""
        fetches = plan(parts, self._budget.scaled(coalescing), self._budget.part_bytes)
        came = await self._all([self._fetch(key, fetch) for fetch in fetches])
        self._wanted += sum(part.length for part in parts)
        return [_cut(part, fetches, came) for part in parts]

    async def _all(self, requests: Sequence[Coroutine[Any, Any, bytes]]) -> list[bytes]:
        """What all of them bring. The first that fails ends the others."""
        tasks = [asyncio.ensure_future(request) for request in requests]
        try:
            return await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _fetch(self, key: str, fetch: Fetch) -> bytes:
        async with self._mine, self._budget.turns:
            found = await self._objects.get_range(key, fetch.position, fetch.length)
        self._requests += 1
        self._moved += len(found)
        if len(found) != fetch.length:
            raise TornBatch(
                f"the object {key} has {fetch.position + len(found)} bytes, and should have {fetch.end} at least",
                key=key,
                position=fetch.position + len(found),
                expected=fetch.end,
            )
        return found


def _cut(part: Part, fetches: Sequence[Fetch], came: Sequence[bytes]) -> memoryview:
    """A part out of what came: a view, or a copy where it was split."""
    if not part.length:
        return memoryview(b"")
    at = bisect_right(fetches, part.position, key=lambda fetch: fetch.position) - 1
    first = fetches[at]
    if part.end <= first.end:
        return memoryview(came[at])[part.position - first.position : part.end - first.position]
    pieces, position = [], part.position
    while position < part.end:
        fetch = fetches[at]
        end = min(fetch.end, part.end)
        pieces.append(memoryview(came[at])[position - fetch.position : end - fetch.position])
        position, at = end, at + 1
    return memoryview(b"".join(pieces))
