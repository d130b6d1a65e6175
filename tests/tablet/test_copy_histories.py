"""Three copies of a bucket through random histories; ``copy_world`` says what must hold in each."""

from __future__ import annotations

import pytest

from strom.tablet.tablet import Durability

from .copy_world import CopyWorld

HISTORIES, STEPS = {"log": 16, "keys": 5}, 120


@pytest.mark.parametrize("durability", ["group", "os"])
@pytest.mark.parametrize("kind", ["log", "keys"])
def test_copies_agree_in_random_histories(kind: str, durability: Durability) -> None:
    for seed in range(HISTORIES[kind]):
        world = CopyWorld(seed, kind, durability)
        for number in range(STEPS):
            world.step()
            if number % 10 == 9:
                world.check()
        world.heal()
        assert {copy.end for copy in world.copies} == {world.leader.end}
