"""The simulation finds bugs: each planted one breaks a promise in a history that is sound without it."""

from __future__ import annotations

import pytest

from simulation.history import run
from simulation.mutants import MUTANTS, Mutant
from simulation.test_simulation import SEEDS
from strom.testing.invariants import InvariantBroken


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    seed, broken = MUTANTS[mutant]
    assert seed < SEEDS, (
        "a bug of this kind in the product must show in the suite, whose histories are sound without"
    )
    mutant(monkeypatch)
    with pytest.raises(InvariantBroken, match=broken) as caught:
        run(seed)
    assert f"make sim SEED={seed}" in str(caught.value)
