"""The simulation finds bugs: each planted one breaks a promise in one of the histories that the suite runs."""

from __future__ import annotations

import pytest

from simulation.history import run
from simulation.mutants import MUTANTS, Mutant
from simulation.test_simulation import SEEDS
from strom.testing.invariants import InvariantBroken


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the suite's own histories, which are sound without it: a bug of this kind in the product shows there.

    The one that is named is tried first; a change of the product may make another one of it.
    """
    likely, broken = MUTANTS[mutant]
    mutant(monkeypatch)

    def run_all() -> None:
        for seed in (likely, *range(SEEDS)):
            run(seed)

    with pytest.raises(InvariantBroken, match=broken) as caught:
        run_all()
    assert "make sim SEED=" in str(caught.value)
