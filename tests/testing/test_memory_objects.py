"""Stores in memory: one that fails before it stores something, and after; and one that has bad days."""

from __future__ import annotations

import asyncio

import pytest

from strom.errors import StoreUnavailable
from strom.runtime.objects.object_store import PutOutcome
from strom.testing import loop
from strom.testing.faulty_objects import FaultyObjects, StoreFaults
from strom.testing.objects import MemoryObjects
from strom.testing.random import SeededRandomness


def test_a_put_can_fail_with_nothing_stored() -> None:
    async def main() -> None:
        objects = MemoryObjects()
        objects.fail_next_put("before")
        with pytest.raises(StoreUnavailable):
            await objects.put("a", b"x")
        assert await objects.list() == []
        await objects.put("a", b"x")
        assert await objects.get("a") == b"x"

    loop.run(main())


def test_a_put_can_fail_although_the_object_is_stored() -> None:
    async def main() -> None:
        objects = MemoryObjects()
        objects.fail_next_put("after")
        with pytest.raises(StoreUnavailable):
            await objects.put_if_absent("a", b"x")
        assert await objects.get("a") == b"x"
        assert await objects.put_if_absent("a", b"y") is PutOutcome.TAKEN

    loop.run(main())


def day(seed: int) -> tuple[list[str], dict[str, int]]:
    """What twenty puts in a row meet on a bad day, and what happened on it."""

    async def main() -> tuple[list[str], dict[str, int]]:
        faults = StoreFaults(lost=0.2, answer_lost=0.2, done_later=0.2, throttled=0.2)
        objects = FaultyObjects(SeededRandomness(seed), faults)
        met = []
        for number in range(20):
            try:
                met.append((await objects.put_if_absent("key", b"%d" % number)).value)
            except StoreUnavailable as trouble:
                met.append(trouble.message)
        return met, dict(objects.count)

    return loop.run(main())


def test_equal_seeds_give_equal_days_on_which_everything_happens() -> None:
    assert day(3) == day(3)
    assert day(3) != day(4)
    assert all(day(3)[1][what] for what in ("lost", "answers lost", "done later", "throttled"))


def test_a_put_that_was_given_up_can_land_later() -> None:
    async def main() -> None:
        objects = FaultyObjects(SeededRandomness(1), StoreFaults(done_later=1.0))
        with pytest.raises(StoreUnavailable):
            await objects.put("a", b"x")
        assert await objects.list() == []
        await asyncio.sleep(objects.faults.later_s)
        assert [one.key for one in await objects.list()] == ["a"]

    loop.run(main())


def test_a_listing_can_be_late() -> None:
    async def main() -> None:
        objects = FaultyObjects(SeededRandomness(1), StoreFaults(listing_lag_s=10.0))
        await objects.put("a", b"x")
        seen = [bool(await objects.list()) for _ in range(20)]
        assert {False, True} == set(seen), "sometimes it shows what is there, sometimes what was there before"
        await asyncio.sleep(10.0)
        assert await objects.list() != []

    loop.run(main())
