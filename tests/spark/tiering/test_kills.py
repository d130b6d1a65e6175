"""A tiering service is killed at any point, and each row is in the lake exactly once in the end."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError

import strom
from api.place import events
from spark.lives import Life
from spark.tiering.dying import DIED, Dying
from spark.tiering.place import USERS, tiered
from spark.tiering.tiers import bury, by_pyiceberg, facts_of, hot, iceberg, in_lake, same_rows, tier
from strom.testing.process import ServerProcess
from waiting import pause_blocking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def users(*ids: int, score: int = 0) -> list[dict[str, object]]:
    return [{"id": number, "name": f"n{number}", "score": score} for number in ids]


@pytest.mark.parametrize("point", ["writing", "commit"])
def test_a_service_that_is_killed_in_a_round_loses_nothing_and_doubles_nothing(
    server: ServerProcess, spark: SparkSession, tmp_path: Path, point: str
) -> None:
    with tiered(server, USERS, primary_key="id", buckets=2) as table:
        table.upsert(users(*range(2000)))
        table.flush()
        tier(server, spark, table)
        table.upsert(users(*range(1000, 3000), score=1))
        table.delete(list(range(100)))
        table.flush()
        life = Life(Dying(server.address, [table.name], point), tmp_path / "errors")
        assert DIED in life.end(), life.told
        assert life.process.returncode == -signal.SIGKILL
        landed = by_pyiceberg(server, table).num_rows == 2900
        assert landed == (point == "commit")
        record = facts_of(server, table).record
        assert record is not None
        assert record.snapshot_id != iceberg(server, table).metadata.current_snapshot_id or not landed
        bury(server, table)
        table.upsert(users(5000))
        table.flush()
        ends = tier(server, spark, table)
        assert [end.error for end in ends] == [None] * len(ends)
        assert in_lake(server, table)
        record = facts_of(server, table).record
        assert record is not None
        assert record.snapshot_id == iceberg(server, table).metadata.current_snapshot_id


@pytest.mark.torture
def test_a_service_that_is_killed_again_and_again_while_rows_come(
    server: ServerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    kills = int(os.environ.get("STROM_TORTURE_KILLS", "12"))
    chance = random.Random(kills)
    points = [None, "writing", "commit", "before commit", None]
    with (
        tiered(server, buckets=3) as log,
        tiered(server, USERS, primary_key="id", buckets=2) as keys,
        Writing(server, log, keys) as writing,
    ):
        for number in range(kills):
            point = points[number % len(points)]
            task = Dying(server.address, [log.name, keys.name], point, once=False, round_bytes=200_000)
            life = Life(task, tmp_path / "errors")
            if point is None:
                pause_blocking(10 + 10 * chance.random())
                life.kill()
            else:
                assert DIED in life.end(), life.told
            assert _no_row_twice(server, log, "id")
            assert _no_row_twice(server, keys, "id")
        assert writing.rows > 0
        writing.stop()
        task = Dying(server.address, [log.name, keys.name])
        deadline = time.monotonic() + 300
        while not (in_lake(server, log) and in_lake(server, keys)):
            assert time.monotonic() < deadline
            life = Life(task, tmp_path / "errors")
            assert life.finished(), life.told
        assert same_rows(hot(log), by_pyiceberg(server, log))


@pytest.mark.torture
def test_two_services_and_kills_bring_each_row_once(
    server: ServerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    with (
        tiered(server, buckets=2) as log,
        tiered(server, USERS, primary_key="id", buckets=2) as keys,
        Writing(server, log, keys) as writing,
    ):
        task = Dying(server.address, [log.name, keys.name], once=False, round_bytes=300_000)
        pair = [Life(task, tmp_path / f"errors{n}") for n in range(2)]
        pause_blocking(30)
        os.kill(pair[0].process.pid, signal.SIGSTOP)  # asleep beyond its lease, it wakes up and goes on
        pause_blocking(75)
        os.kill(pair[0].process.pid, signal.SIGCONT)
        pause_blocking(20)
        pair[1].kill()
        pause_blocking(20)
        pair[0].kill()
        writing.stop()
        last = Life(Dying(server.address, [log.name, keys.name]), tmp_path / "errors2")
        assert last.finished(), last.told
        tier(server, spark, log, keys)
        assert in_lake(server, log)
        assert in_lake(server, keys)


def _no_row_twice(server: ServerProcess, table: strom.Table, column: str) -> bool:
    config = facts_of(server, table).config
    if config is None or not Path(config.catalog_uri).exists():
        return True  # the service died before it made the catalog
    try:
        found = by_pyiceberg(server, table).column(column)
    except NoSuchTableError:
        return True  # nothing has landed yet
    return len(found.unique()) == len(found)


class Writing:
    """Rows that come while services die: a log of rising ids, and keys that are written, changed and deleted."""

    def __init__(self, server: ServerProcess, log: strom.Table, keys: strom.Table) -> None:
        self._address = server.address
        self._names = log.name, keys.name
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.rows = 0

    def __enter__(self) -> Writing:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """No more."""
        self._over.set()
        self._thread.join()

    def _write(self) -> None:
        chance = np.random.default_rng(1)
        with strom.connect(self._address) as db:
            log, keys = (db.table(name) for name in self._names)
            while not self._over.wait(0.1):
                log.append(events(*range(self.rows, self.rows + 100)))
                numbers = np.unique(chance.integers(0, 3000, 200))
                score = pa.array(np.full(len(numbers), self.rows % 1000, np.int32))
                names = pa.array(numbers).cast(pa.string())
                keys.upsert(pa.table({"id": numbers, "name": names, "score": score}))
                keys.delete([int(one) for one in chance.choice(numbers, 20)])
                log.flush(), keys.flush()
                self.rows += 100
