"""How long does the lookup of one row by its key take?

Expected: the median at most 3 times a GET of the same bytes from a real Redis by redis-py with hiredis. Both make two
socket hops and a few Python calls on the client; Redis answers in 10 µs of C, Strom's server is Python: parse the
request, find and gather one row, build the answer. The client decodes ten columns, Redis none. p99 and p99.9 are
reported too, and all of it with 100 batches of 100 upserts a second running beside it.
"""

from __future__ import annotations

import numpy as np

from benchmarks.harness import Answer, Bench, Target
from benchmarks.key_rows import INT_KEY
from benchmarks.key_served import load, micros, quantile, served, timed
from benchmarks.key_traffic import running
from benchmarks.redis_process import redis_server

WARM_UP = 300
WRITE_ROWS, WRITES_PER_SECOND = 100, 100


def measure(bench: Bench) -> list[Answer]:
    keys = bench.size(1_000_000, 50_000)
    count = bench.size(20_000, 2_000)
    numbers = np.random.default_rng(3).integers(0, keys, count + WARM_UP)
    asked: list[object] = [{"id": number} for number in numbers.tolist()]
    names: list[object] = list(INT_KEY.key_bytes(numbers))
    with served(bench.folder / "data") as (server, db), redis_server(bench.folder / "redis") as (redis, port):
        table = db.create_table("t", INT_KEY.schema, primary_key=list(INT_KEY.key), buckets=1)
        load(table, INT_KEY, keys, 1)
        for start in range(0, keys, 10_000):
            some = np.arange(start, min(start + 10_000, keys))
            redis.mset(dict(zip(*INT_KEY.encoded(some, INT_KEY.rows(some)), strict=True)))
        answers = []
        for words, writing in (("alone", False), ("with writes running", True)):
            theirs = _gets(redis.get, names, ("sets", str(port)) if writing else (), keys)
            ours = _gets(table.lookup, asked, ("upserts", server.address) if writing else (), keys)
            figure, reference = micros(ours), micros(theirs)
            answers.append(
                Answer(
                    question=f"lookup of one row, median ({words})",
                    figure=figure,
                    reference=reference,
                    reference_name="Redis GET by redis-py",
                    ratio=figure.median / reference.median,
                    target=None if writing else Target(3, at_least=False),
                    notes={
                        f"{who}_{label}_us": quantile(found, share) * 1e6
                        for who, found in (("ours", ours), ("redis", theirs))
                        for label, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))
                    },
                )
            )
            answers += [
                Answer(
                    question=f"lookup of one row, {label} ({words})",
                    figure=micros([quantile(ours, share)]),
                    reference=micros([quantile(theirs, share)]),
                    reference_name="Redis GET by redis-py",
                    ratio=quantile(ours, share) / quantile(theirs, share),
                )
                for label, share in (("p99", 0.99), ("p99.9", 0.999))
            ]
    return answers


def _gets(call: object, asked: list[object], traffic: tuple[str, ...], keys: int) -> list[float]:
    timed(call, asked[:WARM_UP])
    if not traffic:
        return timed(call, asked[WARM_UP:])
    with running(*traffic, str(keys), str(WRITE_ROWS), str(WRITES_PER_SECOND)):
        return timed(call, asked[WARM_UP:])
