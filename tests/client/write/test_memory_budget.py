"""MemoryBudget for what a writer holds: bounded, first come, first served, and never lost with whoever gave up."""

from __future__ import annotations

import asyncio

from strom.client.write.memory_budget import MemoryBudget
from strom.testing import loop as virtual


def test_there_is_room_up_to_the_limit_and_for_anything_when_nothing_is_there() -> None:
    room = MemoryBudget(10)
    assert room.try_take(25), "a bound must not become a deadlock"
    assert not room.try_take(0)
    assert not room.give_quietly(25), "nobody waits"
    assert room.try_take(4)
    assert room.try_take(6)
    assert not room.try_take(1)
    assert room.taken == 10


def test_who_came_first_is_served_first_though_less_would_fit() -> None:
    async def main() -> None:
        room = MemoryBudget(10)
        assert room.try_take(10)
        served: list[str] = []

        async def take(name: str, amount: int) -> None:
            await room.take(amount)
            served.append(name)

        tasks = []
        for name, amount in (("large", 8), ("small", 1), ("smaller", 1)):
            tasks.append(asyncio.create_task(take(name, amount)))
            await asyncio.sleep(0)
        assert room.give_quietly(3), "somebody waits"
        room.give(0)
        await asyncio.sleep(1)
        assert served == [], "the first needs more, and nobody overtakes it"
        room.give(7)
        await asyncio.gather(*tasks)
        assert served == ["large", "small", "smaller"]

    virtual.run(main())


def test_whoever_gives_up_in_its_turn_passes_it_on() -> None:
    async def main() -> None:
        room = MemoryBudget(10)
        assert room.try_take(10)
        first = asyncio.create_task(room.take(5))
        second = asyncio.create_task(room.take(5))
        await asyncio.sleep(0)
        room.give(10)  # the first is told, and has not run yet
        first.cancel()
        async with asyncio.timeout(1):
            await second
        assert first.cancelled()
        assert room.taken == 5

    virtual.run(main())
