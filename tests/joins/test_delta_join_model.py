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


@pytest.mark.parametrize(
    ("rule", "how"),
    [
        ("old_images", "left"),
        ("old_images", "full"),
        ("null_groups", "left"),
        ("deletes_absent", "inner"),
        ("at_least", "inner"),
        ("settled", "inner"),
        ("doubts_paddings", "left"),
        ("doubts_paddings", "right"),
        ("doubts_changes", "inner"),
    ],
)
def test_a_broken_rule_is_seen(rule: str, how: str) -> None:
    broken = partial(by_key, rules=replace(Rules(), **{rule: False}))
    # Tables that never rest hide a row that should have gone: the next change of its join key takes it away.
    assert wrong(broken, how, tasks=1, live=False, histories=60) or wrong(broken, how) > 0


def test_a_pair_that_moved_to_another_key_is_lost_unless_the_key_is_part_of_its_name() -> None:
    broken = partial(by_key, rules=replace(Rules(), key_in_result=False))
    assert wrong(broken, "full") > 0
