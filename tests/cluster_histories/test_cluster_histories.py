"""Histories of whole clusters from seeds: whatever happens to them, their promises are kept.

A failing seed ends with the line that shows its history again: ``make sim CLUSTER=…``.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster_histories import history
from cluster_histories.history import run
from cluster_histories.plan import TROUBLES, plan

SEEDS = 100
SEEDS_PER_TEST = 10


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_every_promise_of_a_cluster_is_kept_whatever_happens(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        assert run(seed), seed


def test_the_seeds_meet_every_trouble_alone_and_together() -> None:
    plans = [plan(seed) for seed in range(SEEDS)]
    assert {trouble for one in plans for trouble in one.troubles} == set(TROUBLES)
    assert {len(one.troubles) for one in plans} >= {1, 2, 6, len(TROUBLES)}
    for facts in (
        {(one.durability, one.min_insync) for one in plans},
        {(one.servers, one.buckets) for one in plans},
        {(one.lag_ms > 0, one.replica_lag) for one in plans},
        {(one.quiet > 1, one.durability) for one in plans},
    ):
        assert len(facts) == 4


def digest(seed: int) -> str:
    """A whole history as one word."""
    return hashlib.sha256("\n".join(run(seed)).encode()).hexdigest()


def test_the_same_seed_is_the_same_history_also_in_another_process() -> None:
    seed = next(seed for seed in range(SEEDS) if len(plan(seed).troubles) == len(TROUBLES))
    here = digest(seed)
    assert digest(seed) == here
    program = f"from cluster_histories.test_cluster_histories import digest; print(digest({seed}))"
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


@pytest.mark.parametrize("error", [KeyError("x"), AssertionError("y")], ids=repr)
def test_whatever_goes_wrong_the_seed_is_told(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(seed: int) -> list[str]:
        raise error

    monkeypatch.setattr(history, "_live", broken)
    with pytest.raises(BaseException) as caught:
        run(1_000_123)
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "make sim CLUSTER=1000123" in told
