"""Histories from seeds: whatever happens to a cluster, its promises are kept.

A failing seed ends with the line that shows its history again: ``make sim SEED=…``.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulation import history
from simulation.history import run
from simulation.plan import LONG_FROM, TROUBLES, plan

SEEDS = 100
SEEDS_PER_TEST = 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_every_promise_is_kept_whatever_happens(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        assert run(seed), seed


def test_the_seeds_meet_every_trouble_alone_and_together() -> None:
    plans = [plan(seed) for seed in range(SEEDS)]
    assert {trouble for one in plans for trouble in one.troubles} == set(TROUBLES)
    assert {len(one.troubles) for one in plans} >= {0, 1, len(TROUBLES)}
    assert {one.durability for one in plans} == {"os", "group"}
    assert {bool(one.partitions) for one in plans} == {True, False}
    assert {one.ttl_ms is None for one in plans} == {True, False}


def digest(seed: int) -> str:
    """A whole history as one word."""
    return hashlib.sha256("\n".join(run(seed)).encode()).hexdigest()


def test_the_same_seed_is_the_same_history_also_in_another_process() -> None:
    seed = next(seed for seed in range(SEEDS) if len(plan(seed).troubles) == len(TROUBLES))
    here = digest(seed)
    assert digest(seed) == here
    program = f"from simulation.test_simulation import digest; print(digest({seed}))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == here


def test_another_seed_is_another_history() -> None:
    assert digest(1) != digest(2)


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit(3), AssertionError("y")], ids=repr)
def test_whatever_goes_wrong_the_seed_is_told(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(seed: int) -> list[str]:
        raise error

    monkeypatch.setattr(history, "_live", broken)
    with pytest.raises(BaseException) as caught:
        run(1_000_123)
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "make sim SEED=1000123" in told


@pytest.mark.torture
def test_many_more_seeds() -> None:
    end = time.monotonic() + 60 * float(os.environ.get("STROM_TORTURE_MINUTES", "10"))
    first = seed = int(os.environ.get("STROM_FIRST_SEED", LONG_FROM))
    while time.monotonic() < end:
        run(seed)
        seed += 1
    print(f"{seed - first} seeds from {first} on")
    assert seed > first
