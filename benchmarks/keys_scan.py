"""How fast is a scan of two columns of the live table?

Expected: at least 10 times RocksDB iterating over the same rows, which answers bytes that nobody has decoded, and at
least 0.7 of the same scan of a log table that holds just these rows. RocksDB reads whole rows one by one, about 1 µs
each; Strom copies two columns out of its base files under a bitmap of what is live, and then does what a log scan
does. Merges keep more than half of the rows alive, so at most twice the bytes are looked at.
"""

from __future__ import annotations

import time

import numpy as np

import strom
from benchmarks.harness import Answer, Bench, Target, ratio_of
from benchmarks.key_rows import INT_KEY
from benchmarks.key_served import load, served, settle
from benchmarks.rocks_loaded import loaded

COLUMNS = ["amount", "quantity"]


def measure(bench: Bench) -> list[Answer]:
    keys, updates = bench.size(5_000_000, 200_000), bench.size(2, 1)
    form = INT_KEY
    with (
        served(bench.folder / "data", {"kv.scan.lease": "2 s"}) as (server, db),
        loaded(bench, form, keys, updates) as rocks,
    ):
        table = db.create_table("t", form.schema, primary_key=list(form.key), buckets=1)
        load(table, form, keys, updates)
        log = db.create_table("l", form.schema, properties={"table.log.arrow.compression.type": "NONE"})
        for start in range(0, keys, 10_000):
            log.append(form.rows(np.arange(start, start + 10_000)))
        log.flush()
        settle(server)
        bench.pids = server.pids

        def ours() -> float:
            return _scan(table, keys)

        def plain() -> float:
            return _scan(log, keys)

        def iteration() -> float:
            began = time.perf_counter()
            found = sum(1 for _ in rocks.db.items())
            seconds = time.perf_counter() - began
            assert found == keys
            return keys / seconds

        # To iterate over everything takes RocksDB seconds, and hardly varies.
        figure, beside_rocks = bench.compare(ours, iteration, "rows/s", repeats=bench.size(3, 1))
        again, beside_log = bench.compare(ours, plain, "rows/s")
        bench.pids = []
    what = f"scan of two columns of {keys:,} live rows"
    return [
        Answer(what, figure, beside_rocks, "rocksdict iteration", ratio_of(figure, beside_rocks), Target(10)),
        Answer(what, again, beside_log, "scan of a log table", ratio_of(again, beside_log), Target(0.7)),
    ]


def _scan(table: strom.Table, keys: int) -> float:
    began = time.perf_counter()
    found = table.scan(columns=COLUMNS).to_arrow()
    seconds = time.perf_counter() - began
    assert found.num_rows == keys
    return keys / seconds
