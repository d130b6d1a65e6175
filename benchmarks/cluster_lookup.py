"""What do three copies cost a reader by key?

Expected: nothing that counts, at least 0.9 of the lookups a second that a table with one copy takes in the same
cluster. The leader answers from its own copy and asks nobody, so both tables are led by the same server: the same
process, beside the same followers, with the same rows in the same files. One bucket, an int64 key, 10 columns; one by
one, and a thousand keys in a call. Turns are short and many, because a long one measures who had the processor.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import strom
from benchmarks.harness import Answer, Bench, Samples, Target, ratio_of
from benchmarks.key_rows import INT_KEY
from benchmarks.key_served import load, quantile, timed
from benchmarks.on_cluster import cluster, copies, let_lead, rest, server_pids, settle

WAYS = {"three copies": 3, "one copy": 1}
CALLS, CALLS_MANY = 500, 25
"""In one turn; of a thousand keys each when there are many in a call."""
TURNS, TURNS_QUICK = 40, 15


def measure(bench: Bench) -> list[Answer]:
    keys = bench.size(1_000_000, 100_000)
    numbers = np.random.default_rng(3).integers(0, keys, CALLS)
    asked: list[object] = [{"id": number} for number in numbers.tolist()]
    many = INT_KEY.keys(np.random.default_rng(4).integers(0, keys, 1000))
    with cluster(bench.folder / "cluster", {"durability": "os"}) as (running, db):
        tables = {name: _table(db, factor, keys) for name, factor in WAYS.items()}
        settle(db)
        let_lead(db, db.bucket_copies(_name(1))[0].servers[0], _name(3))
        rest(running)
        latencies: dict[str, list[float]] = {name: [] for name in WAYS}
        one_by_one = _turns(
            bench,
            {name: _lookups(table, asked, latencies[name]) for name, table in tables.items()},
            "lookups/s",
            server_pids(running),
        )
        together = _turns(
            bench,
            {name: _lookups_many(table, many) for name, table in tables.items()},
            "keys/s",
            server_pids(running),
        )
    return [
        _answer("lookups one by one", one_by_one, _tails(latencies)),
        _answer("lookups of 1,000 keys in a call", together, {}),
    ]


def _turns(
    bench: Bench, ways: dict[str, Callable[[], float]], unit: str, pids: list[int]
) -> dict[str, Samples]:
    repeats = bench.size(TURNS, TURNS_QUICK)
    return bench.take_turns(ways, unit, pids=dict.fromkeys(ways, pids), repeats=repeats, warm_ups=2)


def _name(factor: int) -> str:
    return f"with_{factor}"


def _table(db: strom.Database, factor: int, keys: int) -> strom.Table:
    table = db.create_table(
        _name(factor), INT_KEY.schema, primary_key=list(INT_KEY.key), buckets=1, properties=copies(factor)
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
    return lambda: CALLS_MANY * 1000 / sum(timed(table.lookup_many, [keys] * CALLS_MANY))


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
