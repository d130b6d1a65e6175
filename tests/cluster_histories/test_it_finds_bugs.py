"""The histories find bugs: each planted one breaks a promise in a history that is sound without it."""

from __future__ import annotations

import pytest

from cluster_histories.history import run
from cluster_histories.mutants import MUTANTS, ClusterMutant
from cluster_histories.scripts import SCRIPTS
from planted.planting import planted
from strom.testing.invariants import InvariantBroken


@pytest.mark.parametrize("mutant", [pytest.param(one, id=one.name) for one in MUTANTS])
def test_a_planted_bug_of_a_cluster_is_found(mutant: ClusterMutant) -> None:
    with planted(mutant.module, mutant.old, mutant.new), pytest.raises(InvariantBroken) as caught:
        run(mutant.shown_by)
    assert f"make sim CLUSTER={mutant.shown_by}" in str(caught.value)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_directed_history_is_sound_without_a_bug(script: str) -> None:
    assert any(" trouble: " in line for line in run(script))


def test_every_script_shows_a_bug_and_there_are_many() -> None:
    assert {one.shown_by for one in MUTANTS} == SCRIPTS.keys()
    assert len({one.name for one in MUTANTS}) == len(MUTANTS) >= 30
