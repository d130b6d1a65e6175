"""The real tablet agrees with the oracle in random histories with crashes; and the oracle notices broken rules in it."""

from __future__ import annotations

import os
from time import monotonic

import pytest
from kv import key_faults
from kv.key_histories import failure

STEPS = 80
HISTORIES = 40

NOTICED = {name: 0 for name in key_faults.FAULTS}
"""For each broken rule a seed that shows it, found by `python -m kv.key_faults`."""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, HISTORIES, 10))
def test_the_tablet_agrees_with_a_dict_per_boundary(first: int) -> None:
    for seed in range(first, first + 10):
        assert failure(seed, STEPS) is None, f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(key_faults.FAULTS))
def test_a_broken_rule_in_the_tablet_is_noticed(fault: str) -> None:
    assert key_faults.failure(NOTICED[fault], fault) is not None


@pytest.mark.torture
def test_the_tablet_agrees_in_thousands_of_histories() -> None:
    until = monotonic() + 60 * float(os.environ.get("STROM_TORTURE_MINUTES", "10"))
    seed = HISTORIES
    while monotonic() < until:
        assert failure(seed, 2 * STEPS) is None, f"seed {seed}"
        seed += 1
    assert seed > HISTORIES
