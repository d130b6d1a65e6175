"""The product's chain in the specification's histories, under the same oracle."""

from __future__ import annotations

import pytest

from remote import test_chain_leader
from remote.driven.driven_world import DrivenWorld
from remote.driven.planted import PLANTED, planted
from remote.specification.history import histories, history

SOUND = range(40)
FENCING = ("no-epoch", "ignore-epoch")
CAMPAIGN = range(2_000_000, 2_020_000)
HAPPENS = (
    "claims",
    "disks lost",
    "late listings",
    "leaders fenced by the chain",
    "losses settled",
    "orphans swept",
    "segments named",
)


def test_the_real_chain_keeps_the_promises() -> None:
    count = histories(SOUND, DrivenWorld)
    assert [what for what in HAPPENS if not count[what]] == []


@pytest.mark.parametrize("name", [name for name in PLANTED if name not in FENCING])
def test_a_planted_bug_is_noticed(name: str) -> None:
    bug = PLANTED[name]
    with planted(name):
        found = history(bug.seed, name, DrivenWorld)[0]
    assert found, f"nobody noticed that {bug.rule}"
    assert history(bug.seed, "", DrivenWorld)[0] == "", "the history is sound without the bug"


@pytest.mark.parametrize("name", FENCING)
def test_a_deposed_leader_that_is_not_fenced_is_noticed(name: str) -> None:
    """In histories it takes hundreds of seeds until both leaders meet; here they do at once."""
    with planted(name), pytest.raises(pytest.fail.Exception, match="DID NOT RAISE") as noticed:
        test_chain_leader.test_a_deposed_leader_names_nothing_and_what_it_put_is_swept()
    assert "StaleEpoch" in str(noticed.value)


@pytest.mark.torture
def test_thousands_of_histories_of_the_real_chain_keep_the_promises() -> None:
    count = histories(CAMPAIGN, DrivenWorld)
    assert count["histories"] == len(CAMPAIGN)
