"""A delta join whose driver is killed at any moment ends as Spark's own join: every kind, and a chain."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark.joining import HOWS, Pair, Parcels, expected, expected_of_three, keep, kept, pair_on, parcels_on
from spark.keeping import CHAIN, CHAINED, Keeping
from spark.lives import LIFE_TIMEOUT_S, Life
from strom.testing.process import ServerProcess
from waiting import pause_blocking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Campaign:
    """Two tables and a third, joins that a program keeps, and its lives."""

    def __init__(self, pair: Pair, parcels: Parcels, folder: Path, kinds: tuple[str, ...]) -> None:
        self._pair, self._parcels, self._folder = pair, parcels, folder
        self.chance = pair.chance
        self.kinds = kinds
        self._told = {
            "server": pair.db.address,
            "left": pair.names[0],
            "right": pair.names[1],
            "parcels": parcels.name,
            "into": pair.new("kept"),
            "checkpoint": str(folder),
            "kinds": kinds,
        }
        task = Keeping(**self._told)
        pair.made += [task.table(kind) for kind in (*kinds, "first")]

    def change(self, count: int) -> None:
        """So much happens, to all three."""
        self._pair.change(count)
        self._parcels.change(-(-count // 3))

    def live(self, *, early: bool) -> None:
        """One life, killed at a random moment: in its first work (``early``), or after some batches of some join."""
        chance = self.chance
        task = Keeping(**self._told, rows_per_batch=chance.randrange(20, 400), cores=chance.randrange(1, 4))
        before = self.published()
        life = Life(task, self._folder / "errors")
        goal = sum(before.values()) + (0 if early else chance.randrange(1, 3 * len(self.kinds)))
        until = time.monotonic() + LIFE_TIMEOUT_S
        while not self._reached(before, goal, early=early):
            assert not life.over, life.told
            assert time.monotonic() < until, f"no progress: {life.told}"
            self.change(chance.randrange(1, 20))
            pause_blocking(0.05)
        for _ in range(chance.randrange(8)):
            self.change(chance.randrange(1, 10))
        assert not life.over, life.told
        life.kill()

    def published(self) -> dict[str, int]:
        """How many batches of each join were decided."""
        mine = {f"join-{Keeping(**self._told).table(kind)}" for kind in (*self.kinds, "first")}
        return {one.name: one.version + 1 for one in self._pair.db.sinks() if one.name in mine}

    def _reached(self, before: dict[str, int], goal: int, *, early: bool) -> bool:
        now = self.published()
        if early and not before:
            made = self._pair.db.tables("fluss")
            return Keeping(**self._told).table(self.kinds[0]).partition(".")[2] in made
        return sum(now.values()) > goal or (early and now != before)

    def ends_right(self, spark: SparkSession) -> None:
        """Brought up to date in this process, every join is Spark's own."""
        for kind, join in Keeping(**self._told).joins(spark).items():
            keep(join, Path(self._told["checkpoint"]) / kind, rows=100_000)  # type: ignore[arg-type]
            wanted = (
                expected_of_three(spark, self._pair, CHAINED[0], self._parcels, CHAINED[1])
                if kind == CHAIN
                else expected(spark, self._pair, kind)
            )
            found = kept(self._pair.db, join.table)
            assert found, kind
            assert found == wanted, kind


def test_joins_whose_driver_is_killed_twice_end_as_sparks_own(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with pair_on(server, seed=11) as pair, parcels_on(server) as parcels:
        campaign = Campaign(pair, parcels, tmp_path, ("full",))
        campaign.change(300)
        for _ in range(2):
            campaign.live(early=False)
        campaign.ends_right(spark)
        assert campaign.published()


@pytest.mark.torture
@pytest.mark.timeout(0)
def test_joins_whose_driver_is_killed_again_and_again_end_as_sparks_own(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    minutes = float(os.environ.get("STROM_TORTURE_MINUTES", "10"))
    seed = int(os.environ.get("STROM_TORTURE_SEED", "1"))
    until, round_number, kills = time.monotonic() + 60 * minutes, 0, 0
    while time.monotonic() < until:
        round_number += 1
        folder = tmp_path / str(round_number)
        folder.mkdir()
        with pair_on(server, seed + round_number) as pair, parcels_on(server, round_number) as parcels:
            campaign = Campaign(pair, parcels, folder, (*HOWS, CHAIN))
            campaign.change(300)
            for _ in range(4):
                campaign.live(early=campaign.chance.random() < 0.25)
                kills += 1
            campaign.ends_right(spark)
    print(f"{kills} kills in {round_number} rounds")
    assert kills
