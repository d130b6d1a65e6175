"""A campaign of histories: all seeds are run, each once, whatever some of them say; and it can be gone on with."""

from __future__ import annotations

import os
import time

import pytest

from cluster_histories.campaign import PIECE, Tally, campaign, seeds_of
from cluster_histories.plan import LONG_FROM
from strom.testing.invariants import InvariantBroken

CAMPAIGN = "100..100100"
"""Behind the seeds of every day."""
PROCESSES = int(os.environ.get("STROM_PROCESSES", os.cpu_count() or 1))


def broken_at_seven(seed: int) -> None:
    """A history, for other processes too."""
    if seed % 100 == 7:
        raise InvariantBroken(f"of {seed}")
    if seed == 50:
        error = KeyError("fifty")
        error.add_note("replay: fifty")
        raise error


def test_every_seed_is_run_and_those_that_fail_are_told() -> None:
    told: list[str] = []
    tally = campaign(range(3, 251), 2, history=broken_at_seven, say=told.append)
    assert tally.count == 248
    assert sorted(tally.failed) == [7, 50, 107, 207]
    assert sorted(line for line in told if line.startswith("seed")) == [
        *(f"seed {seed}: InvariantBroken: of {seed}" for seed in (107, 207)),
        "seed 50: KeyError: 'fifty'\nreplay: fifty",
        "seed 7: InvariantBroken: of 7",
    ]
    assert told[-1] == "248 of 248 histories, 4 failed (7, 50, 107, 207)"


def test_a_campaign_that_ends_early_says_how_to_go_on() -> None:
    turns = iter((True, True, False))
    told: list[str] = []
    tally = campaign(
        range(1_000), 1, history=broken_at_seven, say=told.append, goes_on=lambda: next(turns, False)
    )
    assert tally.count == 2 * PIECE
    assert tally.rest == range(2 * PIECE, 1_000)
    assert told[-1] == f"{2 * PIECE} of 1,000 histories, 1 failed (7); go on with SEEDS={2 * PIECE}..1000"


def test_what_is_to_be_run_again_begins_at_the_first_seed_that_was_not() -> None:
    tally = Tally(range(100))
    tally.add(range(20, 40), {})
    tally.add(range(60, 80), {})
    assert (tally.count, tally.rest) == (40, range(100))
    tally.add(range(20), {})
    assert (tally.count, tally.rest) == (60, range(40, 100))
    tally.add(range(40, 60), {})
    tally.add(range(80, 100), {})
    assert str(tally) == "100 of 100 histories, 0 failed"


@pytest.mark.parametrize(("text", "seeds"), [("7..9", range(7, 9)), ("12", range(12, 13))])
def test_seeds_are_said_by_their_first_and_their_end(text: str, seeds: range) -> None:
    assert seeds_of(text) == seeds


@pytest.mark.torture
def test_a_hundred_thousand_histories_of_whole_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    """Or those of STROM_SEEDS (first..end); in STROM_PROCESSES processes, else as many as the machine has cores."""
    with capsys.disabled():
        tally = campaign(seeds_of(os.environ.get("STROM_SEEDS", CAMPAIGN)), PROCESSES)
    assert not tally.failed
    assert not tally.rest


@pytest.mark.torture
def test_long_histories_of_whole_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    """As many as the minutes of torture allow."""
    end = time.monotonic() + 60 * float(os.environ.get("STROM_TORTURE_MINUTES", "10"))
    with capsys.disabled():
        tally = campaign(range(LONG_FROM, 2 * LONG_FROM), PROCESSES, goes_on=lambda: time.monotonic() < end)
    assert tally.count > 0
    assert not tally.failed
