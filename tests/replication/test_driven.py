"""The decisions of ``strom.replication`` in the specification's histories, under the same oracle.

A copy, the network and clients are the specification's; roles, watermarks, proposals, answers, stages and elections
are decided by the real code.
"""

from __future__ import annotations

import pytest

from replication.driven.driven_world import DrivenWorld
from replication.driven.planted import PLANTED, planted
from replication.specification.history import histories, history
from replication.test_specification import HAPPENS

SOUND = range(1, 301)
CAMPAIGN = range(2_000_000, 2_100_000)


@pytest.mark.slow
def test_the_real_decisions_keep_the_promises() -> None:
    count = histories(SOUND, DrivenWorld)
    happens = (*HAPPENS, "journals read from the beginning again", "proposed removals of the dead")
    assert [what for what in happens if not count[what]] == []


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_noticed(name: str) -> None:
    bug = PLANTED[name]
    with planted(name):
        found = history(bug.seed, name, DrivenWorld)[0]
    assert found, f"nobody noticed that {bug.rule}"
    assert history(bug.seed, "", DrivenWorld)[0] == "", "the history is sound without the bug"


@pytest.mark.torture
def test_a_hundred_thousand_histories_of_real_decisions_keep_the_promises() -> None:
    count = histories(CAMPAIGN, DrivenWorld)
    for what, times in sorted(count.items()):
        print(f"{times:11,} {what}")
    assert count["histories"] == len(CAMPAIGN)
