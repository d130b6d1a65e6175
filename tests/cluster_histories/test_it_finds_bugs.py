"""The histories find bugs: each planted one breaks a promise in one of those that the suite runs."""

from __future__ import annotations

import pytest

from cluster_histories.history import run
from cluster_histories.mutants import MUTANTS, ClusterMutant
from cluster_histories.test_cluster_histories import SEEDS
from planted.planting import planted
from strom.testing.invariants import InvariantBroken

TRIED = 2
"""Of all planted bugs, so many in the suite; all of them in ``make torture``."""


def _tried(number: int, mutant: ClusterMutant) -> object:
    marks = [] if number < TRIED else [pytest.mark.torture]
    return pytest.param(mutant, id=mutant.name, marks=marks)


@pytest.mark.parametrize("mutant", [_tried(*one) for one in enumerate(MUTANTS)])
def test_a_planted_bug_of_a_cluster_is_found(mutant: ClusterMutant) -> None:
    """In the suite's own histories, which are sound without it."""

    def run_all() -> None:
        for seed in range(SEEDS):
            run(seed)

    with planted(mutant.module, mutant.old, mutant.new), pytest.raises(InvariantBroken) as caught:
        run_all()
    assert "make sim CLUSTER=" in str(caught.value)


def test_every_bug_can_be_planted() -> None:
    for mutant in MUTANTS:
        with planted(mutant.module, mutant.old, mutant.new):
            assert mutant.old != mutant.new
