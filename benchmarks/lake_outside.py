"""What does an engine that knows nothing of Strom pay for rounds that came one by one?

Expected: a read by PyIceberg after 50 rounds of changes of a primary-key table takes at most twice as long as of a copy
that was written at once, because maintenance, on as it is by default, merges small files and drops what is dead. Each
round changes a hundredth of the rows; tasks run in this process, because the files do not depend on Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import strom
from benchmarks import on_lake
from benchmarks.harness import Answer, Bench, Target, ratio_of
from benchmarks.key_rows import INT_KEY
from benchmarks.on_lake import Lake
from strom.lake.held_files import HeldFiles, held_files

BUCKETS = 2
LOAD_ROWS = 100_000
ROUND_BY_ROUND, AT_ONCE = "warehouse-rounds", "warehouse-at-once"


def measure(bench: Bench) -> list[Answer]:
    rows, rounds = bench.size(full=1_000_000, quick=20_000), bench.size(full=50, quick=9)
    with on_lake.without_spark(bench) as lake:
        table = lake.db.create_table("t", INT_KEY.schema, primary_key=INT_KEY.key, buckets=BUCKETS)
        for start in range(0, rows, LOAD_ROWS):
            table.upsert(INT_KEY.rows(np.arange(start, min(start + LOAD_ROWS, rows))))
        spent = _rounds(lake, table, rows, rounds)
        assert lake.round(table, AT_ONCE).rows == rows
        ours, theirs = (_reader(lake, table, one, rows) for one in (ROUND_BY_ROUND, AT_ONCE))
        figure, reference = bench.compare(ours, theirs, "s")
        notes = {
            "rows": rows,
            "changes a round": rows // 100,
            "data files, files of deletes, dead rows": _files(lake, table),
            "seconds of upkeep in all rounds": round(spent, 2),
        }
    return [
        Answer(
            f"PyIceberg reads a primary-key table after {rounds} rounds",
            figure,
            reference,
            "a copy written at once",
            ratio_of(figure, reference),
            Target(2.0, at_least=False),
            notes,
        )
    ]


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
            spent += round_of().took["upkeep"]
    return spent


def _reader(lake: Lake, table: strom.Table, warehouse: str, rows: int) -> Callable[[], float]:
    def read() -> float:
        iceberg = lake.table(table, warehouse).iceberg
        began = time.perf_counter()
        found = iceberg.scan().to_arrow()
        seconds = time.perf_counter() - began
        assert found.num_rows == rows
        return seconds

    return read


def _files(lake: Lake, table: strom.Table) -> tuple[int, int, int]:
    held: HeldFiles = held_files(lake.table(table, ROUND_BY_ROUND))
    return len(held.data), len(held.deletes), sum(one.rows for one in held.deletes)
