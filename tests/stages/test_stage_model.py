"""The model of stages keeps its promises in random histories, and its oracle notices every broken rule."""

from __future__ import annotations

import os
from time import monotonic

import pytest

from stages.stage_model import BUGS, failure

HISTORIES = 150
NOTICED = {
    "by_sequence": 0,
    "no_requirement": 0,
    "expire_pinned": 7,
    "no_floor": 9,
    "record_apart": 14,
    "new_stages_for_decided": 0,
    "zombie_stage": 0,
    "forget_pending": 7,
    "only_tables_with_rows": 2,
    "unpin_before_sync": 21,
    "seal_unsynced": 1,
    "hw_inside_group": 3,
    "images_at_stage": 0,
    "raw_vector": 7,
    "forget_early": 39,
    "any_order": 0,
    "no_exists": 6,
}
"""For each broken rule a seed whose history shows it."""


@pytest.mark.slow
def test_every_promise_holds_in_random_histories() -> None:
    for seed in range(HISTORIES):
        assert failure(seed) == "", f"seed {seed}"


@pytest.mark.parametrize("bug", BUGS)
def test_a_broken_rule_is_noticed(bug: str) -> None:
    seed = NOTICED[bug]
    assert failure(seed) == "", "the history is sound while the rule holds"
    assert failure(seed, bug) != ""


@pytest.mark.torture
def test_every_promise_holds_in_thousands_of_histories() -> None:
    until = monotonic() + 60 * float(os.environ.get("STROM_TORTURE_MINUTES", "10")) / 10
    seed = HISTORIES
    while monotonic() < until:
        assert failure(seed) == "", f"seed {seed}"
        seed += 1
    assert seed > HISTORIES
