"""Histories of clusters whose writers are as helpless as the peer's client: no answer may leave one behind.

``make sim CLUSTER=peer-7`` shows one of them.
"""

from __future__ import annotations

from types import ModuleType

import pytest

from cluster_histories.history import run
from cluster_histories.plan import PEER
from planted.planting import planted
from strom.server.calls import bucket_errors
from strom.server.calls.catalog import metadata
from strom.testing.invariants import InvariantBroken

SEEDS = 20
SEEDS_PER_TEST = 10


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_PER_TEST))
def test_a_writer_that_only_does_what_servers_say_is_never_left_behind(first: int) -> None:
    for seed in range(first, first + SEEDS_PER_TEST):
        assert run(f"{PEER}{seed}"), seed


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        pytest.param(
            metadata,
            "            leader_id=leader,",
            "            leader_id=leader if leader in catalog.replicas.get(bucket).wanted[:1] else None,",
            id="some leaders are not named",
        ),
        pytest.param(
            bucket_errors,
            '"error_code": code_of(error)',
            '"error_code": 24 if code_of(error) == 12 else code_of(error)',
            id="a former leader says that it is fenced",
        ),
    ],
)
def test_an_answer_that_it_does_not_survive_is_found(module: ModuleType, old: str, new: str) -> None:
    with planted(module, old, new), pytest.raises(InvariantBroken) as caught:
        run(f"{PEER}5")
    assert f"make sim CLUSTER={PEER}5" in str(caught.value)
