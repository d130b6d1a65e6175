"""How long do lookups take while everything else goes on?

Expected: the p99 at most 5 times that of an idle server, while another process scans the whole table again and again,
a third one upserts in bulk (a tenth of them new keys, so that the index grows), and the server carries, merges and
takes snapshots. The lock of a bucket is held for a batch at most, batches are applied and rows are gathered by
compiled code without the interpreter's lock, scans and jobs run in threads; what is left to wait for is a core. The
other clients run at low priority, so that the cores are the server's.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.harness import Answer, Bench, Samples, Target
from benchmarks.key_rows import INT_KEY
from benchmarks.key_served import job_count, load, one, quantile, served, timed
from benchmarks.key_traffic import running

WARM_UP = 300
SETTINGS = {"kv.segment.file-size": "16 MiB", "kv.snapshot.bytes": "16 MiB", "kv.scan.lease": "2 s"}


def measure(bench: Bench) -> list[Answer]:
    keys = bench.size(1_000_000, 200_000)
    count = bench.size(10_000, 2_000)
    numbers = np.random.default_rng(3).integers(0, keys, count + WARM_UP).tolist()
    asked: list[object] = [{"id": number} for number in numbers]
    with served(bench.folder / "data", SETTINGS) as (server, db):
        table = db.create_table("t", INT_KEY.schema, primary_key=list(INT_KEY.key), buckets=1)
        load(table, INT_KEY, keys, 2)
        time.sleep(1.0)
        timed(table.lookup, asked[:WARM_UP])
        idle = timed(table.lookup, asked[WARM_UP:])
        before = job_count(server)
        scans = ("scans", server.address)
        upserts = ("upserts", server.address, str(keys + keys // 10), "10000", "0")
        answers = []
        for words, traffic in (
            ("a full scan", [scans]),
            ("bulk upserts", [upserts]),
            ("a full scan, bulk upserts, growth, carry and snapshots", [scans, upserts]),
        ):
            busy = _beside(table.lookup, asked, traffic)
            last = words.startswith("a full scan,")
            answers.append(
                Answer(
                    question=f"p99 of lookups beside {words}",
                    figure=_micros(quantile(busy, 0.99)),
                    reference=_micros(quantile(idle, 0.99)),
                    reference_name="idle",
                    ratio=quantile(busy, 0.99) / quantile(idle, 0.99),
                    target=Target(5, at_least=False) if last else None,
                    notes={
                        "idle_median_us": quantile(idle, 0.5) * 1e6,
                        "busy_median_us": quantile(busy, 0.5) * 1e6,
                        "busy_p999_us": quantile(busy, 0.999) * 1e6,
                        "jobs_done": job_count(server) - before,
                    },
                )
            )
    return answers


def _beside(call: object, asked: list[object], traffic: list[tuple[str, ...]]) -> list[float]:
    if not traffic:
        return timed(call, asked[WARM_UP:])
    with running(*traffic[0]):
        return _beside(call, asked, traffic[1:])


def _micros(seconds: float) -> Samples:
    return one(seconds * 1e6, "µs")
