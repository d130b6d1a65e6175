"""The storage model agrees with its oracle, and the oracle notices every broken rule."""

from __future__ import annotations

import os
from time import monotonic

import pytest

from kv.storage_model import LITERAL, PLANTED
from kv.storage_world import failure

STEPS = 120
HISTORIES = 150
NOTICED = {
    "carry-past-H": 76,
    "merge-drops-newer-than-R": 3,
    "dead-from-bitmap-now": 3,
    "trust-old-index": 4,
    "unsynced-series": 7,
    "truncate-forgets-secondary": 1,
    "round-above-synced": 184,
    "recreate-at-zero": 0,
    "series-images-only": 1,
    "secondary-newest-only": 1,
    "carry-live-only": 12,
    "manifest-at-end": 9,
    "log-from-L": 32,
    "manifest-without-R": 55,
    "trim-before-manifest": 1,
    "retention-before-manifest": 64,
    "recycle-below-H": 7,
    "B-inside-batch": 1,
    "H-before-lake": 185,
    "no-epoch-check": 761,
    "drop-takes-no-offset": 0,
    "at-least-without-epoch": 7,
    "log-unsynced-at-manifest": 48,
    "retention-ignores-leases": 8,
    "series-above-L-trusted": 7,
    "recreate-empty": 0,
    "stale-round-harmless": 594,
    "rebase-any-head": 1629,
    "compaction-old-offsets": 89,
}
"""For each broken rule a seed that shows it, found by `python -m kv.storage_world --fault all`."""


@pytest.mark.slow
def test_the_model_agrees_with_a_dict_per_boundary() -> None:
    for seed in range(HISTORIES):
        assert failure(seed, STEPS) is None, f"seed {seed}"


@pytest.mark.parametrize("fault", [*PLANTED, *LITERAL])
def test_a_broken_rule_is_noticed(fault: str) -> None:
    seed = NOTICED[fault]
    assert failure(seed, STEPS) is None, "the history is sound while the rule holds"
    assert failure(seed, STEPS, frozenset({fault})) is not None


@pytest.mark.torture
def test_the_model_agrees_in_thousands_of_histories() -> None:
    until = monotonic() + 60 * float(os.environ.get("STROM_TORTURE_MINUTES", "10")) / 10
    seed = HISTORIES
    while monotonic() < until:
        assert failure(seed, STEPS) is None, f"seed {seed}"
        seed += 1
    assert seed > HISTORIES
