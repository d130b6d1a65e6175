"""How fast are lookups of 1,000 keys at a time through the server?

Expected: at least twice RocksDB's multi-get inside the process, which answers bytes that nobody has decoded. RocksDB
pays about 4 µs a key; Strom pays two socket hops and about half a millisecond of Python for all of them together, and
per key a probe, a copy of ten columns on the server and another one into the caller's order: about 0.5 µs.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from benchmarks.harness import Answer, Bench, Samples, Target, ratio_of
from benchmarks.key_rows import INT_KEY, TEXT_KEY, Form, Numbers
from benchmarks.key_served import QUIET_LOOKS, QUIET_LOOKS_QUICK, load, served, settle
from benchmarks.rocks import Rocks
from benchmarks.rocks_loaded import loaded
from strom.api import Table

ASKED = 1_000


def measure(bench: Bench) -> list[Answer]:
    keys, updates = bench.size(1_000_000, 50_000), bench.size(10, 1)
    rounds = bench.size(200, 30)
    answers = []
    for form in (INT_KEY, TEXT_KEY):
        name = form.name.split()[0]
        random = np.random.default_rng(7)
        picked = [random.integers(0, keys, ASKED) for _ in range(rounds)]
        with served(bench.folder / name) as (server, db), loaded(bench, form, keys, updates) as rocks:
            table = db.create_table("t", form.schema, primary_key=list(form.key), buckets=1)
            load(table, form, keys, updates)
            settle(server, bench.size(QUIET_LOOKS, QUIET_LOOKS_QUICK))
            bench.pids = server.pids
            figure, theirs = _compare(bench, form, table, rocks, picked)
            bench.pids = []
        answers.append(
            Answer(
                question=f"lookup_many of 1,000 keys, {form.name}, {keys:,} keys",
                figure=figure,
                reference=theirs,
                reference_name="rocksdict multi-get in process",
                ratio=ratio_of(figure, theirs),
                target=Target(2),
                notes={"ms_per_call": 1e3 * ASKED / figure.median},
            )
        )
    return answers


def _compare(
    bench: Bench, form: Form, table: Table, rocks: Rocks, picked: list[Numbers]
) -> tuple[Samples, Samples]:
    tables = [pa.Table.from_batches([form.keys(numbers)]) for numbers in picked]
    asked = [form.key_bytes(numbers) for numbers in picked]
    assert table.lookup_many(tables[0])["amount"].null_count == 0
    assert None not in rocks.get(asked[0])

    def ours() -> float:
        began = time.perf_counter()
        for one in tables:
            table.lookup_many(one)
        return ASKED * len(tables) / (time.perf_counter() - began)

    def reference() -> float:
        began = time.perf_counter()
        for one in asked:
            rocks.get(one)
        return ASKED * len(asked) / (time.perf_counter() - began)

    return bench.compare(ours, reference, "keys/s")
