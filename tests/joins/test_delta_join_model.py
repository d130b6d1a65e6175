"""The algorithm of the delta join in a model: the obvious one is wrong, the chosen one right, each broken rule seen."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from joins.model import Rules, by_key, ends_right, pairwise

HISTORIES = 150
HOWS = ("inner", "left", "right", "full")


def wrong(algorithm: object, how: str, histories: int = HISTORIES, **world: object) -> int:
    return sum(not ends_right(algorithm, how, seed, **world) for seed in range(histories))  # type: ignore[arg-type]


@pytest.mark.parametrize("how", HOWS)
def test_looking_up_the_other_side_and_upserting_is_wrong_even_with_one_task_and_no_restart(how: str) -> None:
    found = wrong(pairwise, how, tasks=1, restarts=False, live=False)
    assert found > HISTORIES // 10


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_recomputing_by_join_key_is_right_live_parallel_and_restarted(how: str) -> None:
    assert wrong(by_key, how, 2 * HISTORIES) == 0


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("how", HOWS)
def test_it_is_right_with_resting_tables(how: str, tasks: int) -> None:
    assert wrong(by_key, how, tasks=tasks, live=False) == 0


@pytest.mark.parametrize("how", HOWS)
def test_it_is_right_when_the_result_is_always_looked_at(how: str) -> None:
    assert wrong(partial(by_key, rules=replace(Rules(), trusts_inserts=False)), how, 50) == 0


NOTICED = {
    ("old_images", "left"): 0,
    ("old_images", "full"): 0,
    ("null_groups", "left"): 2,
    ("deletes_absent", "inner"): 0,
    ("at_least", "inner"): 0,
    ("settled", "inner"): 0,
    ("doubts_paddings", "left"): 6,
    ("doubts_paddings", "right"): 0,
    ("doubts_changes", "inner"): 0,
    ("key_in_result", "full"): 5,
}
"""For each broken rule a history that shows it: of one task and resting tables. Tables that never rest hide a row that
should have gone: the next change of its join key takes it away."""


@pytest.mark.parametrize(("rule", "how"), NOTICED)
def test_a_broken_rule_is_seen(rule: str, how: str) -> None:
    seed = NOTICED[rule, how]
    assert seed < HISTORIES, "the suite's own histories, which are right while the rules hold"
    broken = partial(by_key, rules=replace(Rules(), **{rule: False}))
    assert not ends_right(broken, how, seed, tasks=1, live=False)


@pytest.mark.parametrize(
    "rule", ["old_images", "null_groups", "deletes_absent", "at_least", "settled", "doubts_changes"]
)
def test_a_broken_rule_is_seen_live_too(rule: str) -> None:
    broken = partial(by_key, rules=replace(Rules(), **{rule: False}))
    assert wrong(broken, "left", histories=40) > 0
