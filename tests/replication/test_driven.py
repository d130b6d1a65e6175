"""The decisions of ``strom.replication`` in the specification's histories, under the same oracle.

A copy, the network and clients are the specification's; roles, watermarks, proposals, answers, stages and elections
are decided by the real code.
"""

from __future__ import annotations

import pytest

from replication.driven.driven_world import DrivenCutOffWorld, DrivenWorld
from replication.driven.planted import CUT_OFF, PLANTED, planted
from replication.specification.history import histories, history
from replication.test_specification import CUT_OFF_CAMPAIGN, CUT_OFF_SOUND, HAPPENS

SOUND = range(1, 301)
CAMPAIGN = range(2_000_000, 2_100_000)


@pytest.mark.slow
def test_the_real_decisions_keep_the_promises() -> None:
    count = histories(SOUND, DrivenWorld)
    happens = (*HAPPENS, "journals read from the beginning again", "proposed removals of the dead")
    assert [what for what in happens if not count[what]] == []


@pytest.mark.slow
def test_real_decisions_replace_a_leader_that_its_followers_cannot_reach_and_lose_nothing() -> None:
    count = histories(CUT_OFF_SOUND, DrivenCutOffWorld)
    assert count["writers that went on without a leader that was cut off"] == len(CUT_OFF_SOUND)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_noticed(name: str) -> None:
    bug, world = PLANTED[name], DrivenCutOffWorld if name in CUT_OFF else DrivenWorld
    with planted(name):
        found = history(bug.seed, name, world)[0]
    assert found, f"nobody noticed that {bug.rule}"
    assert history(bug.seed, "", world)[0] == "", "the history is sound without the bug"


@pytest.mark.torture
def test_a_hundred_thousand_histories_of_real_decisions_keep_the_promises() -> None:
    count = histories(CAMPAIGN, DrivenWorld)
    for what, times in sorted(count.items()):
        print(f"{times:11,} {what}")
    assert count["histories"] == len(CAMPAIGN)


@pytest.mark.torture
def test_many_histories_of_real_decisions_about_leaders_that_are_cut_off_keep_the_promises() -> None:
    count = histories(CUT_OFF_CAMPAIGN, DrivenCutOffWorld)
    assert count["histories"] == len(CUT_OFF_CAMPAIGN)
