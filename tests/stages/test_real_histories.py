"""The real coordinator, tablets and clients keep the model's promises under its faults; broken rules are noticed."""

from __future__ import annotations

import asyncio
import os
from time import monotonic

import pytest

from stages.mutants import MUTANTS
from stages.real_world import Broken, RealWorld, failure

pytestmark = pytest.mark.slow

HISTORIES = 5
NOTICED = {
    "new_stages_for_decided": 2,
    "expire_pinned": 0,
    "no_floor": 2,
    "raw_scans": 0,
    "never_rolled": 0,
}
"""For each broken rule a history that shows it; a change of the product may make another one of it."""
ONCE_WRONG = (201, 265)
"""A lost answer, a table made again, and a version that another attempt had published in part."""


SEEDS = sorted({*range(HISTORIES), *NOTICED.values(), *ONCE_WRONG})


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds(seed: int) -> None:
    why, world = failure(seed)
    assert why == ""
    assert world is not None
    assert world.stat["troubles"] > 0


def test_a_repeated_answer_may_be_about_the_attempt_itself() -> None:
    world = asyncio.run(_world())
    place = ("log", 1)
    world.attempts = {7: {place: {1, 2}}}
    world.asked, world.decided = {7}, {7: set()}
    world._judge_attempts(place, {0: [("both", 1, 7, 1), ("both", 1, 7, 2)]})
    world._judge_attempts(place, {0: []})
    with pytest.raises(Broken, match="I3 part of attempt 7"):
        world._judge_attempts(place, {0: [("both", 1, 7, 1)]})
    world.decided = {7: {place}}
    with pytest.raises(Broken, match="I10 attempt 7"):
        world._judge_attempts(place, {0: []})


async def _world() -> RealWorld:
    return RealWorld(0)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    assert any(failure(seed)[0] for seed in (NOTICED[name], *SEEDS)), "in histories that are sound without it"


@pytest.mark.torture
def test_every_promise_holds_in_many_histories() -> None:
    until = monotonic() + 60 * float(os.environ.get("STROM_TORTURE_MINUTES", "10")) / 2
    seed = HISTORIES
    while monotonic() < until:
        assert failure(seed)[0] == "", f"seed {seed}"
        seed += 1
    assert seed > HISTORIES
