"""What do three copies cost a reader by key?

Expected: nothing that counts, at least 0.9 of the lookups a second that a table with one copy takes in the same
cluster. The leader answers from its own copy and asks nobody. One bucket, an int64 key, 10 columns; one by one, and a
thousand keys in a call.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import strom
from benchmarks.harness import Answer, Bench, Samples, Target, ratio_of
from benchmarks.key_rows import INT_KEY
from benchmarks.key_served import load, quantile, timed
from benchmarks.on_cluster import cluster, copies, rest, server_pids, settle

WAYS = {"three copies": 3, "one copy": 1}
WARM_UP = 300
CALLS = 100
"""Of a thousand keys each, in one sample: a shorter one measures who had the processor just then."""
REPEATS_QUICK = 3


def measure(bench: Bench) -> list[Answer]:
    keys, count = bench.size(1_000_000, 50_000), bench.size(5_000, 1_000)
    numbers = np.random.default_rng(3).integers(0, keys, count)
    asked: list[object] = [{"id": number} for number in numbers.tolist()]
    repeats = bench.size(bench.repeats, REPEATS_QUICK)
    many = INT_KEY.keys(np.random.default_rng(4).integers(0, keys, 1000))
    with cluster(bench.folder / "cluster", {"durability": "os"}) as (running, db):
        tables = {name: _table(db, factor, keys) for name, factor in WAYS.items()}
        settle(db)
        rest(running)
        pids = dict.fromkeys(WAYS, server_pids(running))
        latencies: dict[str, list[float]] = {name: [] for name in WAYS}
        for table in tables.values():
            timed(table.lookup, asked[:WARM_UP])
        one_by_one = bench.take_turns(
            {name: _lookups(table, asked, latencies[name]) for name, table in tables.items()},
            "lookups/s",
            pids=pids,
            repeats=repeats,
        )
        together = bench.take_turns(
            {name: _lookups_many(table, many) for name, table in tables.items()},
            "keys/s",
            pids=pids,
            repeats=repeats,
        )
    return [
        _answer("lookups one by one", one_by_one, _tails(latencies)),
        _answer("lookups of 1,000 keys in a call", together, {}),
    ]


def _table(db: strom.Database, factor: int, keys: int) -> strom.Table:
    table = db.create_table(
        f"with_{factor}", INT_KEY.schema, primary_key=list(INT_KEY.key), buckets=1, properties=copies(factor)
    )
    load(table, INT_KEY, keys, 1)
    return table


def _lookups(table: strom.Table, asked: list[object], latencies: list[float]) -> Callable[[], float]:
    def run() -> float:
        found = timed(table.lookup, asked)
        latencies.extend(found)
        return len(found) / sum(found)

    return run


def _lookups_many(table: strom.Table, keys: object) -> Callable[[], float]:
    return lambda: CALLS * 1000 / sum(timed(table.lookup_many, [keys] * CALLS))


def _tails(latencies: dict[str, list[float]]) -> dict[str, object]:
    return {f"p99_us, {name}": quantile(found, 0.99) * 1e6 for name, found in latencies.items()}


def _answer(question: str, found: dict[str, Samples], notes: dict[str, object]) -> Answer:
    three, one = found.values()
    cpu: dict[str, object] = {"ours_cpu_s": three.cpu_seconds, "theirs_cpu_s": one.cpu_seconds}
    return Answer(
        f"{question}, three copies",
        three,
        one,
        "one copy",
        ratio_of(three, one),
        Target(0.9),
        {**cpu, **notes},
    )
