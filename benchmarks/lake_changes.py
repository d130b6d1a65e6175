"""What do changes of a large primary-key table cost in the lake?

Expected: 100 k changes of a table of 10 M rows at least five times faster than writing its buckets again by the same
job, because a round reads what changed and what died, and no key; and at most 1.5 times slower than on a table of 1 M
rows, because cost follows the change and not the table.
"""

from __future__ import annotations

import shutil

import numpy as np

import strom
from benchmarks import on_lake, on_spark
from benchmarks.harness import Answer, Bench, Samples, Target
from benchmarks.key_rows import INT_KEY
from benchmarks.on_lake import Lake

BUCKETS = 4
LOAD_ROWS = 100_000
WAREHOUSE = "warehouse-changes"


def measure(bench: Bench) -> list[Answer]:
    large = bench.size(full=10_000_000, quick=100_000)
    small = large // 10
    changes = bench.size(full=100_000, quick=1_000)
    repeats = 1 if bench.quick else 5
    with on_lake.place(bench) as lake:
        tables = {rows: _loaded(lake, rows) for rows in (small, large)}
        clock = on_spark.Clock(changes, lake.server)
        seconds: dict[str, list[float]] = {"small": [], "large": [], "rewrite": []}
        steps: dict[str, dict[str, float]] = {}

        def changed(name: str, rows: int, version: int) -> None:
            _change(tables[rows], rows, changes, version)
            run = clock.of(name, lambda: steps.__setitem__(name, lake.round(tables[rows], WAREHOUSE).took))
            seconds[name].append(changes / run())

        def rewritten() -> None:
            shutil.rmtree(bench.folder / "warehouse-again", ignore_errors=True)
            run = clock.of("rewrite", lambda: lake.round(tables[large], "warehouse-again"))
            seconds["rewrite"].append(changes / run())

        for number in range(repeats + 1):  # in turn, so that a noisy moment hits all; the first one warms up
            changed("small", small, number + 1)
            changed("large", large, number + 1)
            if number < bench.size(3, 2):
                rewritten()
        figures = {name: _samples(found[1:] or found) for name, found in seconds.items()}
        cpu = {name: clock.cpu_of(name) for name in seconds}
    notes = {
        "rows": large,
        "changes": changes,
        "cpu seconds a run": cpu,
        "seconds of a round's steps": {
            name: {step: round(took, 3) for step, took in found.items()} for name, found in steps.items()
        },
    }
    return [
        Answer(
            question=f"tier {changes:,} changes of {large:,} rows: how many times faster than writing all buckets",
            figure=figures["large"],
            reference=figures["rewrite"],
            reference_name="all buckets again, by the same job",
            ratio=figures["rewrite"].median / figures["large"].median,
            target=Target(5.0),
            notes=notes | {"cpu ratio": round(cpu["rewrite"] / cpu["large"], 2)},
        ),
        Answer(
            question=f"the same, beside a table of {small:,} rows",
            figure=figures["large"],
            reference=figures["small"],
            reference_name=f"{small:,} rows",
            ratio=figures["large"].median / figures["small"].median,
            target=Target(1.5, at_least=False),
            notes=notes | {"cpu ratio": round(cpu["large"] / cpu["small"], 2)},
        ),
    ]


def _loaded(lake: Lake, rows: int) -> strom.Table:
    table = lake.db.create_table(f"t{rows}", INT_KEY.schema, primary_key=INT_KEY.key, buckets=BUCKETS)
    for start in range(0, rows, LOAD_ROWS):
        table.upsert(INT_KEY.rows(np.arange(start, min(start + LOAD_ROWS, rows))))
    table.flush()
    assert lake.round(table, WAREHOUSE).rows == rows
    return table


def _change(table: strom.Table, rows: int, changes: int, version: int) -> None:
    random = np.random.default_rng(version)
    table.upsert(INT_KEY.rows(np.sort(random.choice(rows, changes, replace=False)), version))
    table.flush()


def _samples(seconds: list[float]) -> Samples:
    return Samples(tuple(round(one, 3) for one in seconds), "s", sum(seconds), 0.0)
