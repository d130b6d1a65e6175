"""Maintenance is killed at any point: no row is lost or comes twice, and what it left behind goes in the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lake.dying_upkeep import POINTS, UPKEEP
from lake.lake_places import Lake, events
from strom.lake.iceberg.lake_head import read_head
from strom.lake.upkeep.maintenance import Maintenance
from strom.lake.upkeep.reachable import reachable
from strom.lake.upkeep.removal import remove_orphans
from strom.runtime.clock import SystemClock

TESTS = Path(__file__).parents[2]


def killed(folder: Path, point: str) -> int:
    """How the process ended."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    task = json.dumps({"warehouse": str(folder), "die": point})
    command = [sys.executable, "-m", "lake.dying_upkeep", task]
    return subprocess.run(command, env=environment, check=False, timeout=60).returncode


@pytest.mark.parametrize("point", POINTS)
def test_maintenance_that_is_killed_loses_nothing_and_leaves_nothing(tmp_path: Path, point: str) -> None:
    lake = Lake(tmp_path)
    for number in range(9):
        dead = [number - 1] if number % 2 else []
        lake.round(lake.file(events(number, number + 100), [2 * number, 2 * number + 1]), end=2 * number + 2)
        lake.round(end=2 * number + 2, dead=[2 * one for one in dead])
    rows = lake.rows()
    assert killed(tmp_path, point) == -signal.SIGKILL
    assert lake.rows() == rows
    lake.head = read_head(lake.table)
    lake.round(lake.file(events(77), [18]), end=19, dead=[17])
    rows = lake.rows()
    Maintenance().after_round(lake.table, UPKEEP, lambda: ())
    assert lake.rows() == rows
    assert read_head(lake.table).totals.rows == len(rows)
    remove_orphans(lake.table, SystemClock(), orphan_ms=-1000)
    folder = Path(lake.table.storage.path(lake.table.location))
    there = {f"file://{path}" for path in folder.rglob("*") if path.is_file()}
    named = reachable(lake.table.refresh())
    assert {uri for uri in there - named if "strom-claim" not in uri} == set()
    assert lake.rows() == rows
    lake.catalog.close()
