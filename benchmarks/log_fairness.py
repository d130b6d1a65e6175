"""Does one greedy client starve the rest?

Expected: no. With a full scan and a bulk load running against the same server, the p99 of a small fetch stays within 5
times its idle p99: big reads and writes go through the server in slices, and none holds the loop for more than a
fraction of a millisecond. On two cores four busy processes also compete for the CPU itself. Beside it: 200 connections
of which 50 tail a table; all rows reach all tails.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pyarrow as pa

import strom
from benchmarks.harness import Answer, Bench, Samples, Target
from benchmarks.workload import SMALL_SCHEMA, small_batch
from strom import aio
from strom.testing.process import ServerProcess

ROWS = 10_000
ROUNDS = 3
"""Idle and busy in turn; the p99 of one round hangs on a few calls, so the median of the rounds' p99 counts."""
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def measure(bench: Bench) -> list[Answer]:
    count = bench.size(full=1000, quick=400)
    idle: list[list[float]] = []
    busy: list[list[float]] = []
    with ServerProcess(bench.folder / "data", settings={"durability": "os"}) as server:
        _fill(server.address, bench.size(full=300, quick=100))
        for _ in range(ROUNDS):
            idle.append(_small_fetches(server.address, count))
            with _greedy(server.address, "scan"), _greedy(server.address, "load"):
                busy.append(_small_fetches(server.address, count))
    figure = Samples(tuple(map(_p99, busy)), "ms p99", 0.0, 0.0)
    reference = Samples(tuple(map(_p99, idle)), "ms p99", 0.0, 0.0)
    notes = {
        "idle_median_ms": statistics.median(chain(*idle)) * 1e3,
        "busy_median_ms": statistics.median(chain(*busy)) * 1e3,
        "busy_max_ms": max(chain(*busy)) * 1e3,
    }
    fair = Answer(
        question="small fetch under a full scan and a bulk load, p99",
        figure=figure,
        reference=reference,
        reference_name="idle",
        ratio=figure.median / reference.median,
        target=Target(5, at_least=False),
        notes=notes,
    )
    return [fair, _crowd(bench)]


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98] * 1e3


def _fill(address: str, batches: int) -> None:
    properties = {"table.log.arrow.compression.type": "NONE"}
    with strom.connect(address) as db:
        big = db.create_table("big", SMALL_SCHEMA, properties=properties)
        db.create_table("load", SMALL_SCHEMA, properties=properties | {"table.log.retention-bytes": "1gb"})
        small = db.create_table("small", SCHEMA, properties=properties)
        with big.writer() as writer:
            for i in range(batches):
                writer.append(small_batch(ROWS, start=i * ROWS))
        small.append({"id": list(range(100)), "text": ["a few words"] * 100})
        small.flush()


def _small_fetches(address: str, count: int) -> list[float]:
    """Seconds of each read of a 100-row table, one after the other."""

    async def run() -> list[float]:
        async with await aio.connect(address) as db:
            table = await db.table("small")
            seconds = []
            for i in range(count + 50):
                began = time.perf_counter()
                found = await table.scan(start=0, end=100).to_arrow()
                if i >= 50:
                    seconds.append(time.perf_counter() - began)
                assert found.num_rows == 100
            return seconds

    return asyncio.run(run())


@contextmanager
def _greedy(address: str, role: str) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.log_fairness", role, address]
    with subprocess.Popen(
        command, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "going\n"
        try:
            yield
            assert process.poll() is None, f"the greedy {role} ended early"
        finally:
            process.kill()


def _scan_for_ever(address: str) -> None:
    with strom.connect(address) as db:
        table = db.table("big")
        print("going", flush=True)
        while True:
            for _ in table.scan().to_batches():
                pass


def _load_for_ever(address: str) -> None:
    batches = [small_batch(ROWS, start=i * ROWS) for i in range(8)]
    with strom.connect(address) as db, db.table("load").writer() as writer:
        print("going", flush=True)
        for i in range(20_000):  # bounded: at most 18 GB, of which retention keeps one
            writer.append(batches[i % 8])


def _crowd(bench: Bench) -> Answer:
    """200 connections; 50 of them tail one table; how long until a row has reached all 50?"""
    rounds = bench.size(full=50, quick=15)

    async def run(address: str) -> list[float]:
        idle = [await aio.connect(address) for _ in range(150)]
        readers = [await aio.connect(address) for _ in range(50)]
        table = await (await aio.connect(address)).create_table("crowd", SCHEMA)
        tails = [(await db.table("crowd")).tail(start="earliest") for db in readers]
        seconds = []
        for number in range(rounds):
            began = time.perf_counter()
            await table.append({"id": [number], "text": ["x"]})
            await table.flush()
            got = await asyncio.gather(*(anext(aiter(tail)) for tail in tails))
            seconds.append(time.perf_counter() - began)
            assert all(batch.data.column("id").to_pylist() == [number] for batch in got)
        for tail in tails:
            await tail.aclose()
        for db in [*idle, *readers]:
            await db.close()
        return seconds

    with ServerProcess(bench.folder / "crowd", settings={"durability": "os"}) as server:
        seconds = asyncio.run(run(server.address))
    return Answer(
        question="one row reaches 50 tails, 200 connections open",
        figure=Samples(tuple(1e3 * value for value in seconds), "ms", sum(seconds), 0.0),
        reference=None,
        reference_name="",
        ratio=None,
    )


if __name__ == "__main__":
    {"scan": _scan_for_ever, "load": _load_for_ever}[sys.argv[1]](sys.argv[2])
