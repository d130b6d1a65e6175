"""Many parts at once: the right bytes, on few connections, and the first trouble ends the rest."""

from __future__ import annotations

import asyncio
import random

import pytest

from strom.errors import StoreUnavailable, TornBatch
from strom.runtime.objects.range_plan import MIB, Coalescing, Part
from strom.runtime.objects.range_reader import IN_FLIGHT_MAX, IN_FLIGHT_OF_A_READER, RangeBudget, RangeReader
from strom.testing import loop
from strom.testing.objects import MemoryObjects

APART = Coalescing(0, 1.0)


class Counted(MemoryObjects):
    """Counts requests that are under way; each takes a second."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way = self.most = self.asked = 0
        self.fails_at: int | None = None

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        self.asked += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await asyncio.sleep(1.0)
            if position == self.fails_at:
                raise StoreUnavailable("gone", sent=True)
            return await super().get_range(key, position, length)
        finally:
            self.under_way -= 1


def test_each_part_gets_its_bytes_in_the_order_asked_for() -> None:
    content = random.Random(1).randbytes(9 * MIB)
    parts = [
        Part(5 * MIB, 3 * MIB),
        Part(0, 0),
        Part(10, 20),
        Part(4 * MIB - 5, 10),
        Part(20, 20),
        Part(0, 9 * MIB),
    ]

    async def main() -> tuple[list[bytes], tuple[int, int, int]]:
        objects = MemoryObjects()
        await objects.put("object", content)
        reader = RangeReader(objects, RangeBudget())
        return [bytes(one) for one in await reader.read("object", parts)], reader.costs

    found, costs = loop.run(main())
    assert found == [content[part.position : part.end] for part in parts]
    assert costs == (3, 9 * MIB, sum(part.length for part in parts))


def test_a_reader_and_all_readers_have_bounds() -> None:
    async def main(readers: int) -> tuple[int, float]:
        objects = Counted()
        await objects.put("object", bytes(1000))
        budget = RangeBudget()
        parts = [Part(number * 20, 10) for number in range(40)]
        work = [RangeReader(objects, budget).read("object", parts, APART) for _ in range(readers)]
        await asyncio.gather(*work)
        return objects.most, asyncio.get_running_loop().time()

    assert loop.run(main(1)) == (IN_FLIGHT_OF_A_READER, 10.0)
    assert loop.run(main(8)) == (IN_FLIGHT_MAX, 20.0)


def test_an_object_that_ends_too_early_is_torn() -> None:
    async def main() -> None:
        objects = MemoryObjects()
        await objects.put("object", bytes(100))
        await RangeReader(objects, RangeBudget()).read("object", [Part(90, 20)])

    with pytest.raises(TornBatch, match="object has 100 bytes, and should have 110"):
        loop.run(main())


def test_the_first_trouble_ends_the_other_requests() -> None:
    async def main() -> tuple[int, int]:
        objects = Counted()
        objects.fails_at = 0
        await objects.put("object", bytes(1000))
        reader = RangeReader(objects, RangeBudget())
        with pytest.raises(StoreUnavailable):
            await reader.read("object", [Part(number * 20, 10) for number in range(40)], APART)
        return objects.under_way, objects.asked

    under_way, asked = loop.run(main())
    assert under_way == 0
    assert asked <= 2 * IN_FLIGHT_OF_A_READER
