"""A delta join whose driver is killed at any moment ends as Spark's own join of its tables."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark.joining import HOWS, Pair, expected, kept, pair_on
from spark.keeping import DONE, Keeping
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(0)]

TESTS = Path(__file__).parent.parent
LIFE_TIMEOUT_S = 240


class Life:
    """One life of the program."""

    def __init__(self, task: Keeping, errors: Path) -> None:
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), environment.get("PYTHONPATH", "")])
        self._errors = errors
        with errors.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spark.keeping", task.argument()],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
                text=True,
            )

    def kill(self) -> None:
        """SIGKILL to Python and its JVM at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=30)

    def end(self) -> bool:
        """Wait for its end; whether it did everything."""
        try:
            output, _ = self.process.communicate(timeout=LIFE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the join did not end; {self.told}") from None
        return DONE in output

    @property
    def told(self) -> str:
        return self._errors.read_text(errors="replace")[-2000:]


def killed_somewhere(life: Life, pair: Pair, table: str, chance: random.Random) -> bool:
    """Kill the program a while after its result was there, or before; False when it ended before."""
    until = time.monotonic() + LIFE_TIMEOUT_S
    early = chance.random() < 0.2
    while table.partition(".")[2] not in pair.db.tables("fluss") or (not early and not kept(pair.db, table)):
        if life.process.poll() is not None:
            assert life.end(), life.told
            return False
        assert time.monotonic() < until, life.told
        time.sleep(0.05)
    time.sleep(chance.random() * 4)
    if life.process.poll() is not None:
        assert life.end(), life.told
        return False
    life.kill()
    return True


def survive(
    spark: SparkSession, server: ServerProcess, folder: Path, how: str, kills: int, seed: int
) -> None:
    chance = random.Random(seed)
    with pair_on(server, seed) as pair:
        pair.change(300)
        into = pair.new("wide")
        told = {
            "server": server.address,
            "left": pair.names[0],
            "right": pair.names[1],
            "into": into,
            "how": how,
            "checkpoint": str(folder / "checkpoint"),
        }
        died = 0
        while died < kills:
            task = Keeping(**told, rows_per_batch=chance.randrange(10, 120), cores=chance.randrange(1, 4))
            life = Life(task, folder / "errors")
            if died:
                pair.change(100)
            died += killed_somewhere(life, pair, into, chance)
            pair.change(200)
            pair.delete_a_pair()
        last = Life(Keeping(**told), folder / "errors")
        assert last.end(), last.told
        found = kept(pair.db, into)
        assert found
        assert found == expected(spark, pair, how)


@pytest.mark.torture
def test_a_join_whose_driver_is_killed_ends_as_sparks_own(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    survive(spark, server, tmp_path, "full", kills=2, seed=11)
    assert (tmp_path / "checkpoint" / "commits").is_dir()


@pytest.mark.torture
@pytest.mark.parametrize("how", HOWS)
def test_a_join_whose_driver_is_killed_again_and_again_ends_as_sparks_own(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, how: str
) -> None:
    kills = int(os.environ.get("STROM_TORTURE_KILLS", "20"))
    survive(spark, server, tmp_path, how, kills=kills, seed=len(how))
    assert (tmp_path / "checkpoint" / "commits").is_dir()
