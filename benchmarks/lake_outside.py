"""What does an engine that knows nothing of Strom pay for rounds that came one by one?

Expected: a read after 50 rounds of changes of a primary-key table takes at most twice as long as of a copy that was
written at once, because maintenance, on as it is by default, merges small files and drops what is dead, and every file
of deletes is of one data file. Each round changes a hundredth of the rows; tasks run in this process, because the files
do not depend on Spark.

Three readers: Polars, DuckDB with its Iceberg extension (in an environment of its own), and PyIceberg. Of PyIceberg two
to three times is expected as soon as every file has a dead row, however few: for each row of such a file it makes a
number in Python. How it reads a copy after a single round of changes is beside it, to tell its part from ours.
"""

from __future__ import annotations

import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars
from pyiceberg.table import Table
from tests.lake.readers_environment import duckdb_python

import strom
from benchmarks import on_lake
from benchmarks.harness import Answer, Bench, Target, ratio_of
from benchmarks.key_rows import INT_KEY
from benchmarks.on_lake import Lake
from strom.lake.iceberg.held_files import HeldFiles, held_files

BUCKETS = 2
LOAD_ROWS = 100_000
ROUND_BY_ROUND, AT_ONCE, ONE_ROUND = "warehouse-rounds", "warehouse-at-once", "warehouse-one-round"
LIMIT = 2.0

Read = Callable[[Table], float]
"""Reads all rows of a table; how many seconds it took."""


def measure(bench: Bench) -> list[Answer]:
    rows, rounds = bench.size(full=1_000_000, quick=20_000), bench.size(full=50, quick=9)
    with on_lake.without_spark(bench) as lake, _duckdb(rows) as by_duckdb:
        table = lake.db.create_table("t", INT_KEY.schema, primary_key=INT_KEY.key, buckets=BUCKETS)
        for start in range(0, rows, LOAD_ROWS):
            table.upsert(INT_KEY.rows(np.arange(start, min(start + LOAD_ROWS, rows))))
        spent = _rounds(lake, table, rows, rounds)
        notes: dict[str, object] = {
            "rows": rows,
            "changes a round": rows // 100,
            "data files, files of deletes, dead rows": _files(lake, table),
            "seconds of upkeep in all rounds": round(spent, 2),
        }
        assert lake.round(table, AT_ONCE).rows == rows
        changed, once, copy = (
            lake.table(table, name).iceberg for name in (ROUND_BY_ROUND, ONE_ROUND, AT_ONCE)
        )
        readers = {"Polars": _polars(rows), "DuckDB's Iceberg": by_duckdb, "PyIceberg": _pyiceberg(rows)}
        many = [
            _answer(bench, f"{name} reads a primary-key table after {rounds} rounds", read, changed, copy)
            for name, read in readers.items()
        ]
        one = _answer(bench, "PyIceberg reads it after a single one", readers["PyIceberg"], once, copy)
        many[0].notes.update(notes)
        return [*many, replace(one, target=None)]


def _answer(bench: Bench, question: str, read: Read, changed: Table, copy: Table) -> Answer:
    figure, reference = bench.compare(lambda: read(changed), lambda: read(copy), "s")
    ratio = ratio_of(figure, reference)
    return Answer(question, figure, reference, "a copy written at once", ratio, Target(LIMIT, at_least=False))


def _rounds(lake: Lake, table: strom.Table, rows: int, rounds: int) -> float:
    """All rounds; how many seconds their upkeep took."""
    chance = np.random.default_rng(1)
    spent = 0.0
    with lake.opened(table, ROUND_BY_ROUND) as round_of:
        for number in range(rounds):
            if number:
                changed = np.sort(chance.choice(rows, rows // 100, replace=False))
                table.upsert(INT_KEY.rows(changed, number))
            table.flush()
            if number < 2:
                lake.round(table, ONE_ROUND)
            spent += round_of().took["upkeep"]
    return spent


# --- readers ---------------------------------------------------------------------------------------------------------


def _pyiceberg(rows: int) -> Read:
    def read(table: Table) -> float:
        began = time.perf_counter()
        found = table.scan().to_arrow()
        seconds = time.perf_counter() - began
        assert found.num_rows == rows
        return seconds

    return read


def _polars(rows: int) -> Read:
    def read(table: Table) -> float:
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", polars.exceptions.PerformanceWarning)  # planned by PyIceberg
            found = polars.scan_iceberg(table).collect()
        seconds = time.perf_counter() - began
        assert found.height == rows
        return seconds

    return read


@contextmanager
def _duckdb(rows: int) -> Iterator[Read]:
    command = [str(duckdb_python()), str(Path(__file__).with_name("duckdb_outside.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def read(table: Table) -> float:
            print(table.metadata_location.removeprefix("file://"), file=process.stdin, flush=True)
            found, seconds = process.stdout.readline().split()  # type: ignore[union-attr]
            assert int(found) == rows
            return float(seconds)

        yield read
        process.stdin.close()


def _files(lake: Lake, table: strom.Table) -> tuple[int, int, int]:
    held: HeldFiles = held_files(lake.table(table, ROUND_BY_ROUND))
    return len(held.data), len(held.deletes), sum(one.rows for one in held.deletes)
