"""The real coordinator, tablets and clients keep the model's promises under its faults; broken rules are noticed."""

from __future__ import annotations

import os
from time import monotonic

import pytest

from stages.mutants import MUTANTS
from stages.real_world import failure

pytestmark = pytest.mark.slow

HISTORIES = 5
NOTICED_WITHIN = 30
"""Each broken rule shows in one of so many histories, most in the first few."""


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_every_promise_holds(seed: int) -> None:
    why, world = failure(seed)
    assert why == ""
    assert world is not None
    assert world.stat["troubles"] > 0


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    assert any(failure(seed)[0] for seed in range(NOTICED_WITHIN))


@pytest.mark.torture
def test_every_promise_holds_in_many_histories() -> None:
    until = monotonic() + 60 * float(os.environ.get("STROM_TORTURE_MINUTES", "10")) / 2
    seed = HISTORIES
    while monotonic() < until:
        assert failure(seed)[0] == "", f"seed {seed}"
        seed += 1
    assert seed > HISTORIES
