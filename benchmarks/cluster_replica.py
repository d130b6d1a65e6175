"""How fast is a new copy of a primary-key table made, and what do lookups notice of it?

Expected: at least 100 MB/s, with the p99 of lookups at most twice what it is without. Files are copied as they are, in
pieces, at `replica.copy.rate` at most, which is what keeps lookups quick on two cores; then the new copy takes in the
rows of its log from there on. The lookups come from a process of their own, one every 2 ms; the clock runs from the
command until the copy is in sync, and what counts as copied is what lies in its folder then. Durability `os`.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import strom
from benchmarks.beside import quantile
from benchmarks.call_loop import calling
from benchmarks.harness import Answer, Bench, Samples, Target, cpu_seconds
from benchmarks.key_rows import INT_KEY
from benchmarks.on_cluster import POLL_S, SETTLED_TIMEOUT_S, cluster, copies, let_lead, rest, settle

RATE = 192 << 20
"""Bytes a second."""
TABLE = "customers"
ROWS = 20_000


def measure(bench: Bench) -> list[Answer]:
    keys, calm_s = bench.size(10_000_000, 1_000_000), bench.size(10, 3)
    settings = {"durability": "os", "replica.copy.rate": RATE}
    with cluster(bench.folder / "cluster", settings) as (running, db):
        _load(db, keys)
        let_lead(db, db.bucket_copies(TABLE)[0].servers[0], TABLE)
        rest(running)
        leader = db.bucket_copies(TABLE)[0].servers[0]
        added = leader % 3 + 1
        with calling("lookups", running.address, TABLE) as loop:
            time.sleep(1.0)
            calm = time.monotonic_ns()
            time.sleep(calm_s)
            cpu = {one: -cpu_seconds(running.tablets[one].pid) for one in (leader, added)}
            began = time.monotonic_ns()
            db.move_bucket(TABLE, 0, to=[leader, added])
            _await_copy(db, added)
            ended = time.monotonic_ns()
            cpu = {one: before + cpu_seconds(running.tablets[one].pid) for one, before in cpu.items()}
        size = _bytes(running.tablets[added].folder)
    seconds = (ended - began) / 1e9
    idle, busy = (quantile(loop.seconds(*one), 0.99) * 1e3 for one in ((calm, began), (began, ended)))
    notes = {"keys": keys, "bytes": size, "seconds": seconds, "rate": RATE, "errors": len(loop.failed)}
    notes |= {"leader_cpu_s": cpu[leader], "follower_cpu_s": cpu[added]}
    rate = Samples((size / 1e6 / seconds,), "MB/s", seconds, 0.0)
    p99 = [Samples((one,), "ms p99", 0.0, 0.0) for one in (busy, idle)]
    return [
        Answer(f"a new copy of {keys:,} keys", rate, None, "", rate.median, Target(100), notes),
        Answer(
            "lookups while a copy is made, p99",
            *p99,
            "without",
            busy / idle,
            Target(2, at_least=False),
            notes,
        ),
    ]


def _load(db: strom.Database, keys: int) -> None:
    table = db.create_table(
        TABLE, INT_KEY.schema, primary_key=list(INT_KEY.key), buckets=1, properties=copies(1)
    )
    for start in range(0, keys, ROWS):
        table.upsert(INT_KEY.rows(np.arange(start, start + ROWS)))
    table.flush()
    settle(db)


def _await_copy(db: strom.Database, server: int) -> None:
    began = time.monotonic()
    while server not in db.bucket_copies(TABLE)[0].in_sync:
        if time.monotonic() - began > SETTLED_TIMEOUT_S:
            raise TimeoutError(f"server {server} has no copy in sync after {SETTLED_TIMEOUT_S:g} s")
        time.sleep(POLL_S)


def _bytes(folder: Path) -> int:
    """Of all files of a server: it has copies of this table alone."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
