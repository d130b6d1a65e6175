"""The histories find bugs: each planted one breaks a promise in a history that is sound without it."""

from __future__ import annotations

import pytest

from cluster_histories.history import run
from cluster_histories.mutants import MUTANTS, ClusterMutant
from cluster_histories.test_cluster_histories import SEEDS
from planted.planting import planted
from strom.testing.invariants import InvariantBroken

TRIED = frozenset(
    {
        "high ignores the followers",
        "too few members acknowledge all the same",
        "the leader's own copy is not counted",
        "who lost power last leads",
    }
)
"""Of all planted bugs, those whose histories are short are in the suite; all of them in ``make torture``."""


def _cases() -> list[object]:
    return [
        pytest.param(one, id=one.name, marks=[] if one.name in TRIED else [pytest.mark.torture])
        for one in MUTANTS
    ]


@pytest.mark.parametrize("mutant", _cases())
def test_a_planted_bug_of_a_cluster_is_found(mutant: ClusterMutant) -> None:
    seeds = range(SEEDS) if mutant.seed is None else [mutant.seed]

    def run_all() -> None:
        for seed in seeds:
            run(seed)

    with planted(mutant.module, mutant.old, mutant.new), pytest.raises(InvariantBroken) as caught:
        run_all()
    assert "make sim CLUSTER=" in str(caught.value)
    if mutant.seed is not None:
        assert run(mutant.seed)


def test_those_of_the_suite_take_one_history_each() -> None:
    assert {one.name for one in MUTANTS if one.seed is not None} >= TRIED


def test_every_bug_can_be_planted() -> None:
    for mutant in MUTANTS:
        with planted(mutant.module, mutant.old, mutant.new):
            assert mutant.old != mutant.new
