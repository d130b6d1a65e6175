"""The simulation finds bugs: each planted one breaks a promise within a few seeds."""

from __future__ import annotations

import pytest

from simulation.history import run
from simulation.mutants import MUTANTS, Mutant
from simulation.plan import plan
from strom.testing.invariants import InvariantBroken

SEEDS_MAX = 30


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble, broken = MUTANTS[mutant]
    seeds = [seed for seed in range(1_000) if not trouble or trouble in plan(seed).troubles]
    mutant(monkeypatch)

    def run_all() -> None:
        for seed in seeds[:SEEDS_MAX]:
            run(seed)

    with pytest.raises(InvariantBroken, match=broken) as caught:
        run_all()
    assert "make sim SEED=" in str(caught.value)
