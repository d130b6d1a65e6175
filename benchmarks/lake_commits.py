"""Does a commit become slower the more there were?

Expected: the commit of the 500th round takes at most three times as long as that of the 10th, as snapshots, manifests
and metadata files do not pile up. Rounds of 100 rows each, a log and a primary-key table, the service's own code; tasks
run in this process, because Spark's share of a round does not depend on their number.
"""

from __future__ import annotations

import statistics

import strom
from benchmarks import on_lake
from benchmarks.harness import Answer, Bench, Samples, Target
from benchmarks.on_lake import Lake
from benchmarks.workload import SMALL_SCHEMA, small_batch

ROWS = 100
NEAR = 5
"""Commits before and after the one that is looked at: a single one may be unlucky."""


def measure(bench: Bench) -> list[Answer]:
    rounds = bench.size(full=500, quick=30)
    early = 10
    answers = []
    with on_lake.without_spark(bench) as lake:
        for words, key in (("a log", None), ("a primary-key table", "id")):
            table = lake.db.create_table(f"t_{key}", SMALL_SCHEMA, buckets=2, primary_key=key)
            seconds = _rounds(lake, table, rounds + NEAR, keys=key is not None)
            near = {at: seconds[at - NEAR : at + NEAR] for at in (early, rounds)}
            figure, reference = (_samples(near[at]) for at in (rounds, early))
            answers.append(
                Answer(
                    question=f"commit of round {rounds} of {words}",
                    figure=figure,
                    reference=reference,
                    reference_name=f"of round {early}",
                    ratio=figure.median / reference.median,
                    target=Target(3.0, at_least=False),
                    notes={
                        "milliseconds, every 25th": _curve(seconds),
                        "curve_round_ms": [
                            (number, round(one * 1000, 2)) for number, one in enumerate(seconds, 1)
                        ],
                    },
                )
            )
    return answers


def _rounds(lake: Lake, table: strom.Table, count: int, *, keys: bool) -> list[float]:
    """Seconds of each commit."""
    found = []
    with lake.opened(table, "warehouse-commits") as round_of:
        for number in range(count):
            rows = small_batch(ROWS, (number % 50) * ROWS)  # keys come again, and die
            (table.upsert if keys else table.append)(rows)
            table.flush()
            found.append(round_of().took["committing"])
    return found


def _samples(seconds: list[float]) -> Samples:
    return Samples(tuple(round(one * 1000, 2) for one in seconds), "ms", sum(seconds), 0.0)


def _curve(seconds: list[float]) -> list[float]:
    return [
        round(statistics.median(seconds[at : at + 25]) * 1000, 1) for at in range(0, len(seconds) - 24, 25)
    ]
