"""The rules of replication as a program: histories of a bucket in which everything goes wrong, and an oracle.

``python -m replication.specification.history --seed N`` (in ``tests``) tells the history of a seed.
"""

from __future__ import annotations

import pytest

from replication.specification.cut_off import CutOffWorld
from replication.specification.history import histories, history
from replication.specification.mutants import CUT_OFF, MUTANTS

SOUND = range(1, 301)
CUT_OFF_SOUND = range(1, 61)
CAMPAIGN = range(1_000_000, 1_100_000)
CUT_OFF_CAMPAIGN = range(3_000_000, 3_020_000)

HAPPENS = (
    "rows acknowledged",
    "failovers and moves of the leader",
    "leaders deposed by a pull",
    "epochs begun by the former leader again",
    "rows appended by a deposed leader",
    "power losses of all at once",
    "losses declared",
    "disks replaced",
    "isr: an identity replaced an older one",
    "truncations of a follower",
    "groups truncated",
    "groups taken back",
    "open groups cut by a new leader",
    "groups begun from stages that an earlier leader sealed",
    "copies of a base installed",
    "copies removed",
    "replicas taken out by hand",
    "repeated batches recognised",
    "strong lookups",
    "reads that had to wait",
    "rounds of tiering",
)


@pytest.mark.slow
def test_the_rules_keep_their_promises_and_the_histories_have_something_in_them() -> None:
    count = histories(SOUND)
    assert [what for what in HAPPENS if not count[what]] == []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_noticed(name: str) -> None:
    seed = MUTANTS[name].seed
    assert history(seed, name)[0], f"nobody noticed that {MUTANTS[name].rule}"
    assert history(seed)[0] == "", "the history is sound without the break"


@pytest.mark.slow
def test_a_leader_that_its_followers_cannot_reach_is_replaced_and_nothing_is_lost() -> None:
    count = histories(CUT_OFF_SOUND, CutOffWorld)
    assert count["writers that went on without a leader that was cut off"] == len(CUT_OFF_SOUND)
    assert count["replacements of leaders that are cut off"] > 2 * len(CUT_OFF_SOUND), (
        "also amid other faults"
    )


@pytest.mark.parametrize("name", CUT_OFF)
def test_a_broken_rule_about_leaders_that_are_cut_off_is_noticed(name: str) -> None:
    seed = CUT_OFF[name].seed
    assert history(seed, name, CutOffWorld)[0], f"nobody noticed that {CUT_OFF[name].rule}"
    assert history(seed, "", CutOffWorld)[0] == "", "the history is sound without the break"


def test_a_seed_tells_its_history_again() -> None:
    first, second = (history(4711)[1] for _ in range(2))
    assert (first.trace, first.count, first.truth) == (second.trace, second.count, second.truth)


@pytest.mark.torture
def test_a_hundred_thousand_histories_keep_the_promises() -> None:
    count = histories(CAMPAIGN)
    for what, times in sorted(count.items()):
        print(f"{times:11,} {what}")
    assert count["histories"] == len(CAMPAIGN)


@pytest.mark.torture
def test_many_histories_of_leaders_that_are_cut_off_keep_the_promises() -> None:
    count = histories(CUT_OFF_CAMPAIGN, CutOffWorld)
    assert count["histories"] == len(CUT_OFF_CAMPAIGN)
