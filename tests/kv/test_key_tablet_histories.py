"""The real tablet agrees with the oracle in random histories with crashes; the oracle notices broken rules in it."""

from __future__ import annotations

import os
from dataclasses import replace
from time import monotonic

import pytest

from kv import key_faults
from kv.key_histories import World, failure
from strom.errors import StorageFull

STEPS = 80
HISTORIES = 30

NOTICED = {
    "carry-past-H": 5,
    "merge-drops-newer-than-R": 0,
    "live-bits-now": 0,
    "unsynced-files": 9,
    "truncate-forgets-secondary": 10,
    "series-images-only": 0,
    "secondary-newest-only": 0,
    "manifest-at-end": 12,
    "manifest-without-R": 366,
    "trim-before-manifest": 36,
    "retention-before-manifest": 1,
    "retention-ignores-leases": 189,
    "files-swept-before-manifest": 2,
    "recycle-below-H": 13,
    "at-least-without-epoch": 110,
    "log-unsynced-at-manifest": 32,
    "hash-is-key": 1,
}
"""For each broken rule a seed that shows it, found by `python -m kv.key_faults`. A bug of that kind in the tablet
itself shows there too: these seeds are histories of this suite."""
SHOWING = sorted(seed for seed in set(NOTICED.values()) if seed >= HISTORIES)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, HISTORIES, 10))
def test_the_tablet_agrees_with_a_dict_per_boundary(first: int) -> None:
    for seed in range(first, first + 10):
        assert failure(seed, STEPS) is None, f"seed {seed}"


def test_a_snapshot_under_way_says_what_died_it_lets_go_of() -> None:
    """A lake that asks for an offset below where the snapshot began gets its answer at once, not after a restart."""
    world = World(1)
    for _ in range(4):
        world.step_write()
    world.step_sync()
    world.tablet.hold(None)
    end = world.tablet.high_watermark
    world.tablet.upkeep.raise_horizon(end, world.now)
    assert world.tablet.keep_series_from(1) == 1, "nothing has gone yet"
    assert world.tablet.keep_series_from(None) == 0
    job = world.tablet.upkeep.snapshot_job()
    assert world.tablet.keep_series_from(1) == end > 1
    job.work()
    job.finish()
    assert world.tablet.store.series.start == end == world.tablet.keep_series_from(end)


def test_a_snapshot_that_failed_is_made_up_for_when_the_tablet_closes() -> None:
    """Else the next opening replays all that the failed one should have held."""
    world = World(1)
    for _ in range(4):
        world.step_write()
    world.step_sync()
    world.tablet.hold(None)
    upkeep = world.tablet.upkeep
    upkeep._settings = replace(upkeep._settings, snapshot_bytes=8)
    job = upkeep.snapshot_job()
    world.disk.fill(0)
    with pytest.raises(StorageFull):
        job.work()
    job.abandon()
    world.disk.fill(None)
    end = world.tablet.high_watermark
    world.tablet.close()
    manifest = world.open().manifest
    assert manifest is not None
    assert manifest.offset == end


@pytest.mark.slow
@pytest.mark.parametrize("seed", [146])
def test_histories_that_once_went_wrong_agree(seed: int) -> None:
    assert failure(seed, 2 * STEPS) is None


@pytest.mark.slow
@pytest.mark.parametrize("fault", list(key_faults.FAULTS))
def test_a_broken_rule_in_the_tablet_is_noticed(fault: str) -> None:
    assert key_faults.failure(NOTICED[fault], fault) is not None


@pytest.mark.slow
@pytest.mark.parametrize("seed", SHOWING)
def test_the_histories_that_show_broken_rules_agree_while_they_hold(seed: int) -> None:
    assert failure(seed, STEPS) is None


@pytest.mark.torture
def test_the_tablet_agrees_in_thousands_of_histories() -> None:
    until = monotonic() + 60 * float(os.environ.get("STROM_TORTURE_MINUTES", "10"))
    seed = HISTORIES
    while monotonic() < until:
        assert failure(seed, 2 * STEPS) is None, f"seed {seed}"
        seed += 1
    assert seed > HISTORIES
