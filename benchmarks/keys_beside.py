"""How long do lookups take while everything else goes on?

Expected: the p99 at most 5 times that of an idle server, while another process scans the whole table again and again,
a third one upserts in bulk (a tenth of them new keys, so that the index grows), and the server carries, merges and
takes snapshots. The lock of a bucket is held for moments, batches are applied and rows are gathered by compiled code
without the interpreter's lock, scans and jobs run in threads that step back, and bulk work pauses while small calls are
about. What is left to wait for is a core. The traffic runs at normal priority; beside it, all of it at nice 10.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain

import numpy as np

from benchmarks import beside, raw
from benchmarks.beside import Latencies
from benchmarks.harness import Answer, Bench
from benchmarks.key_rows import INT_KEY
from benchmarks.key_served import job_count, load, served, timed
from benchmarks.key_traffic import running
from strom.testing.process import ServerProcess

WARM_UP = 300
SETTINGS = {"kv.segment.file-size": "16 MiB", "kv.snapshot.bytes": "16 MiB", "kv.scan.lease": "10 s"}
EVERYTHING = "a full scan, bulk upserts, growth, carry and snapshots"


def measure(bench: Bench) -> list[Answer]:
    keys = bench.size(1_000_000, 50_000)
    count, rounds = bench.size(2_000, 1_000), bench.size(7, 1)
    seconds = (
        bench.size(4, 3) / 2
    )  # a round is as long as that, so that carries, merges and snapshots fall into it
    numbers = np.random.default_rng(3).integers(0, keys, count).tolist()
    asked: list[object] = [{"id": number} for number in numbers]
    with served(bench.folder / "data", SETTINGS) as (server, db), raw.started("echo") as (echo, _):
        table = db.create_table("t", INT_KEY.schema, primary_key=list(INT_KEY.key), buckets=1)
        load(table, INT_KEY, keys, 2)
        time.sleep(1.0)
        timed(table.lookup, asked[:WARM_UP])

        def lookups() -> Latencies:
            found: Latencies = []
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                found += timed(table.lookup, asked)
            return found

        def echoes() -> Latencies:
            return raw.echo_round_trips(echo, count, pause_s=0.001)

        idle = [lookups() for _ in range(rounds)]
        scans = ("scans", server.address)
        upserts = ("upserts", server.address, str(keys + keys // 10), "10000", "0")
        if bench.quick:  # the one that has a target
            return [_beside(server, EVERYTHING, [scans, upserts], lookups, idle, counts=True)]
        idle_echo = [echoes() for _ in range(3)]
        answers = [
            _beside(server, "a full scan", [scans], lookups, idle),
            _beside(server, "bulk upserts", [upserts], lookups, idle),
            _beside(server, EVERYTHING, [scans, upserts], lookups, idle, counts=True),
            _beside(server, f"{EVERYTHING} (traffic at nice 10)", [scans, upserts], lookups, idle, low=True),
        ]
        answers.append(_beside(server, EVERYTHING, [scans, upserts], echoes, idle_echo, of="echoes"))
    return answers


def _beside(
    server: ServerProcess,
    words: str,
    traffic: list[tuple[str, ...]],
    measured: Callable[[], Latencies],
    idle: list[Latencies],
    *,
    counts: bool = False,
    low: bool = False,
    of: str = "lookups",
) -> Answer:
    with ExitStack() as stack:
        for one in traffic:
            stack.enter_context(running(*one, low_priority=low))
        time.sleep(beside.SETTLE_S)
        before = job_count(server)
        busy = [measured() for _ in idle]
        jobs = job_count(server) - before
    name = "p99 of lookups" if of == "lookups" else "  reference: p99 of an echo by an idle process"
    notes = {"busy_p999_ms": beside.quantile(list(chain(*busy)), 0.999) * 1e3, "jobs_done": jobs}
    return beside.answer(f"{name} beside {words}", busy, idle, counts=counts, notes=notes)
