"""How fast are upserts through client and server?

Expected, against RocksDB inside the process reading and writing pre-encoded rows and nothing more: at least 1.5 times
with old and new rows in the changelog (FULL), at least 4 times with new ones only (WAL), in batches of 10 k rows by an
int64 key. The client copies the rows once into a message, the server checks its CRC and its buffers and then does what
the engine does; the two overlap on two cores, so the slower of the two sets the pace.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.harness import Answer, Bench, Samples, Target, ratio_of
from benchmarks.key_rows import INT_KEY, TEXT_KEY, Encoded
from benchmarks.key_served import QUIET_LOOKS, QUIET_LOOKS_QUICK, load, properties, served, settle
from benchmarks.rocks import Rocks
from benchmarks.rocks_loaded import loaded
from strom.api import Table

ROWS = 10_000
ROUNDS = 30
KINDS = ((INT_KEY, "FULL", Target(1.5)), (INT_KEY, "WAL", Target(4)), (TEXT_KEY, "FULL", Target(1.5)))


def measure(bench: Bench) -> list[Answer]:
    keys, updates = bench.size(1_000_000, 50_000), bench.size(10, 1)
    answers = []
    for form, image, target in KINDS:
        name = f"{form.name.split()[0]}-{image}"
        random = np.random.default_rng(5)
        picked = [random.integers(0, keys, ROWS) for _ in range(bench.size(ROUNDS, ROUNDS // 3))]
        plain = [form.rows(numbers, 99 + i) for i, numbers in enumerate(picked)]
        encoded = [form.encoded(numbers, batch) for numbers, batch in zip(picked, plain, strict=True)]
        with served(bench.folder / name) as (server, db), loaded(bench, form, keys, updates) as rocks:
            table = db.create_table(
                "t", form.schema, primary_key=list(form.key), buckets=1, properties=properties(image)
            )
            load(table, form, keys, updates)
            settle(server, bench.size(QUIET_LOOKS, QUIET_LOOKS_QUICK))
            bench.pids = server.pids
            ours, theirs = _compare(bench, table, plain, rocks, encoded)
            bench.pids = []
        answers.append(
            Answer(
                question=f"upserts through client and server, {form.name}, {image}, {keys:,} keys",
                figure=ours,
                reference=theirs,
                reference_name="rocksdict get + put in process",
                ratio=ratio_of(ours, theirs),
                target=target,
            )
        )
    return answers


def _compare(
    bench: Bench, table: Table, plain: list[object], rocks: Rocks, encoded: list[Encoded]
) -> tuple[Samples, Samples]:
    def ours() -> float:
        began = time.perf_counter()
        for batch in plain:
            table.upsert(batch)
        table.flush()
        return ROWS * len(plain) / (time.perf_counter() - began)

    def reference() -> float:
        began = time.perf_counter()
        for batch in encoded:
            rocks.get_put(batch)
        return ROWS * len(encoded) / (time.perf_counter() - began)

    return bench.compare(ours, reference, "rows/s")
