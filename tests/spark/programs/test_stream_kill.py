"""A streaming copy whose driver is killed ends equal to its original, row for row."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import strom
from spark.copying import Copying
from spark.lives import LIFE_TIMEOUT_S, Life
from spark.place import table_on, users_on
from strom.testing.process import ServerProcess
from waiting import pause_blocking

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 1_000_000
FEW_ROWS = 300_000
BATCHES = 7
"""Drivers are killed between batches and within: how many batches there are matters, not how large they are."""
KILLS = 2
PLAIN = {"id": "BIGINT", "name": "STRING"}
COPY = {**PLAIN, "noise": "DOUBLE"}


def fill(table: strom.Table, rows: int) -> None:
    ids = np.arange(rows)
    table.append(pa.table({"id": ids, "name": pa.array(ids).cast(pa.string())}))
    table.flush()


def plans(
    server: ServerProcess, source: strom.Table, copy: strom.Table, folder: Path, rows: int = ROWS
) -> list[Copying]:
    """Lives with other cores, partitions and faults, which take turns."""
    told: dict[str, Any] = {
        "rows_per_batch": -(-rows // BATCHES),
        "server": server.address,
        "source": source.name,
        "sink": copy.name,
        "checkpoint": str(folder / "checkpoint"),
    }
    return [
        Copying(**told, master="local[2,4]"),
        Copying(**told, master="local[1,4]", repartition=3, failing=True),
        Copying(**told, master="local[3,4]", repartition=2),
    ]


def kill_after(life: Life, copy: strom.Table, rows: int, chance: random.Random) -> bool:
    """Kill the program a random while after it has copied so many rows; False when it had ended before."""
    until = time.monotonic() + LIFE_TIMEOUT_S
    while copy.scan().count() < rows and not life.over:
        assert time.monotonic() < until, f"no progress; {life.told}"
        pause_blocking(0.05)
    pause_blocking(chance.random() * 0.5)
    if life.over:
        life.end()
        return False
    life.kill()
    return True


def same_rows(original: strom.Table, copy: strom.Table) -> bool:
    """Whether both hold the same ids and names, each once."""
    tables = [one.scan(columns=["id", "name"]).to_arrow() for one in (original, copy)]
    ordered = [_ordered(table) for table in tables]
    return ordered[0].equals(ordered[1])


def _ordered(table: pa.Table) -> pa.Table:
    whole = table.combine_chunks()
    return whole.take(pa.array(np.argsort(whole.column("id").to_numpy(), kind="stable")))


def test_a_copy_that_is_killed_twice_equals_its_original(server: ServerProcess, tmp_path: Path) -> None:
    chance = random.Random(7)
    with table_on(server, PLAIN, buckets=3) as source, table_on(server, COPY, buckets=2) as copy:
        fill(source, FEW_ROWS)
        lives = plans(server, source, copy, tmp_path, FEW_ROWS)
        for number in range(KILLS):
            life = Life(lives[number % len(lives)], tmp_path / "errors")
            assert kill_after(life, copy, FEW_ROWS // 4 * (number + 1), chance), life.told
        last = Life(lives[2], tmp_path / "errors")
        assert last.finished(), last.told
        assert copy.scan().count() == FEW_ROWS
        assert same_rows(source, copy)


@pytest.mark.torture
@pytest.mark.timeout(0)
def test_a_copy_that_is_killed_again_and_again_equals_its_original(
    server: ServerProcess, tmp_path: Path
) -> None:
    kills = int(os.environ.get("STROM_TORTURE_KILLS", "20"))
    chance = random.Random(kills)
    with table_on(server, PLAIN, buckets=3) as source, table_on(server, COPY, buckets=2) as copy:
        fill(source, 3 * ROWS)
        lives = plans(server, source, copy, tmp_path)
        done = 0
        while done < kills:
            life = Life(lives[done % len(lives)], tmp_path / "errors")
            goal = int(3 * ROWS * (done + chance.random()) / (kills + 2))
            assert kill_after(life, copy, goal, chance), f"after {done} kills: {life.told}"
            done += 1
        last = Life(lives[0], tmp_path / "errors")
        assert last.finished(timeout_s=900), last.told
        assert copy.scan().count() == 3 * ROWS
        assert same_rows(source, copy)


@pytest.mark.torture
@pytest.mark.timeout(0)
def test_two_drivers_on_one_checkpoint_publish_once(server: ServerProcess, tmp_path: Path) -> None:
    with table_on(server, PLAIN, buckets=2) as source, table_on(server, COPY, buckets=2) as copy:
        fill(source, ROWS)
        task = plans(server, source, copy, tmp_path)[0]
        pair = [Life(task, tmp_path / "errors") for _ in range(2)]
        ended = [life.finished() for life in pair]
        if not any(ended):
            assert Life(task, tmp_path / "errors").finished()
        assert copy.scan().count() == ROWS
        assert same_rows(source, copy)


@pytest.mark.torture
@pytest.mark.timeout(0)
def test_speculative_tasks_publish_once(server: ServerProcess, tmp_path: Path) -> None:
    with table_on(server, PLAIN, buckets=4) as source, table_on(server, COPY, buckets=2) as copy:
        fill(source, ROWS)
        told = plans(server, source, copy, tmp_path)[0]
        task = Copying(
            **{**vars(told), "master": "local-cluster[2,1,1024]", "speculation": True, "repartition": 6}
        )
        life = Life(task, tmp_path / "errors")
        assert life.finished(timeout_s=600), life.told
        assert copy.scan().count() == ROWS
        assert same_rows(source, copy)


@pytest.mark.torture
@pytest.mark.timeout(0)
def test_a_killed_copy_of_a_primary_key_table_equals_its_original(
    server: ServerProcess, tmp_path: Path
) -> None:
    chance = random.Random(3)
    with users_on(server) as source, users_on(server) as copy:
        for step in range(40):
            keys = np.unique(np.array([chance.randrange(20_000) for _ in range(5_000)]))
            source.upsert(
                pa.table(
                    {
                        "id": keys,
                        "name": pa.array(keys).cast(pa.string()),
                        "score": pa.array(np.full(len(keys), step, np.int32)),
                    }
                )
            )
            source.delete([int(one) for one in keys[:: 1 + step % 5]])
        source.flush()
        task = Copying(
            server=server.address,
            source=source.name,
            sink=copy.name,
            checkpoint=str(tmp_path / "checkpoint"),
            changelog=True,
            rows_per_batch=20_000,
        )
        for goal in (100, 5_000):
            life = Life(task, tmp_path / "errors")
            kill_after(life, copy, goal, chance)
        last = Life(task, tmp_path / "errors")
        assert last.finished(), last.told
        both = [one.scan().to_arrow().sort_by("id") for one in (source, copy)]
        assert both[0].equals(both[1])
