"""Real processes, real load, events at random: no promise is broken. ``make campaign SEED=7`` runs one seed again."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from campaign.campaign import Campaign

EVENTS = 200
FEW = 4
FEW_SEED = 5


def test_a_few_events_break_no_promise(tmp_path: Path) -> None:
    report = Campaign(tmp_path, FEW_SEED, pipeline=False, quiet=True, zookeepers=1).run(FEW)
    assert report.events.total() == FEW
    assert min(report.rows, report.operations, report.transactions, report.batches) > 0


@pytest.mark.torture
def test_no_promise_is_broken_in_hundreds_of_events(tmp_path: Path) -> None:
    seed = int(os.environ.get("STROM_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"again: make campaign SEED={seed} EVENTS={EVENTS}")
    report = Campaign(tmp_path, seed).run(EVENTS)
    print(report)
    assert report.events.total() >= EVENTS
    assert report.rows > 0
    assert report.operations > 0
    assert report.transactions > 0
    assert report.batches > 0
