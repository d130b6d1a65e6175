"""The rules of remote storage as programs: histories in which everything goes wrong, and an oracle for each.

    chain     the manifests and objects of one bucket (C1 to C8)
    keys      base files and index of a primary-key bucket, evicted, exchanged, opened from nothing (K1 to K5)
    server    the chain of a server without a disk (D1, D2)
    restore   a cluster that comes back from its store (B1 to B4)

``python -m remote.specification.history --model NAME`` (in ``tests``) counts what happens in many of them.
"""

from __future__ import annotations

import pytest

from remote.specification.history import histories, history
from remote.specification.models import MODELS

SOUND = {"chain": 250, "keys": 60, "server": 200, "restore": 300}
CAMPAIGN = {"chain": 20_000, "keys": 5_000, "server": 20_000, "restore": 20_000}
FIRST_OF_CAMPAIGN = 1_000_000

HAPPENS = {
    "chain": (
        "claims",
        "disks lost",
        "leaders fenced by the chain",
        "local rows deleted",
        "losses settled",
        "manifests in doubt",
        "manifests taken",
        "orphans swept",
        "segments named",
    ),
    "keys": (
        "both disks lost",
        "cold reads",
        "copied from the store",
        "files evicted",
        "leaders changed",
        "manifests",
        "objects swept",
        "opened from the store",
    ),
    "server": ("acknowledged", "deposed by a seal", "own objects found", "puts asked again", "sealed"),
    "restore": (
        "buckets the metadata did not know",
        "commits the metadata did not know",
        "decisions torn by the loss",
        "old uploads fenced",
        "rows cut",
    ),
}
BROKEN = [(model, rule) for model in MODELS for rule in MODELS[model].mutants]


@pytest.mark.parametrize("model", MODELS)
def test_the_rules_keep_their_promises_and_the_histories_have_something_in_them(model: str) -> None:
    count = histories(range(SOUND[model]), MODELS[model].make)
    assert [what for what in HAPPENS[model] if not count[what]] == []


@pytest.mark.parametrize(("model", "rule"), BROKEN)
def test_a_broken_rule_is_noticed(model: str, rule: str) -> None:
    make, mutant = MODELS[model].make, MODELS[model].mutants[rule]
    assert history(mutant.seed, rule, make)[0], f"nobody noticed that {mutant.rule}"
    assert history(mutant.seed, "", make)[0] == "", "the history is sound without the break"


@pytest.mark.torture
@pytest.mark.parametrize("model", MODELS)
def test_thousands_of_histories_keep_the_promises(model: str) -> None:
    seeds = range(FIRST_OF_CAMPAIGN, FIRST_OF_CAMPAIGN + CAMPAIGN[model])
    count = histories(seeds, MODELS[model].make)
    assert count["histories"] == CAMPAIGN[model]
