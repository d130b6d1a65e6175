"""Does one greedy client starve the rest?

Expected: no. With a full scan and a bulk load running against the same server, the p99 of a small fetch stays within 5
times its idle p99. The traffic runs at normal priority; beside it, the same with the traffic at nice 10.

On two cores four busy processes and their threads compete for the cores themselves, and no server decides about that.
What the machine alone does is asked of two that have nothing to do with the traffic: a process that echoes bytes, and
a second server that only has the small table. That the first server may do better than the second is no mistake: it
makes its scan and its load pause while small calls are about (docs/decisions/0008-fairness.md).

Beside it: 200 connections of which 50 tail a table; all rows reach all tails.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa

import strom
from benchmarks import beside, raw
from benchmarks.beside import Latencies, Process
from benchmarks.harness import Answer, Bench, Samples
from benchmarks.workload import SMALL_SCHEMA, small_batch
from strom import aio
from strom.testing.process import ServerProcess

ROWS = 10_000
CALLS_MIN = 300
"""In a round, however slow they are: a p99 hangs on the slowest few."""
ROUND_S_MAX = 2.5
"""Then a round ends with the calls it has: the whole question takes about a minute on any machine."""
REFERENCE_ROUNDS_MAX = 3
SETTINGS = {"durability": "os"}
SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


def measure(bench: Bench) -> list[Answer]:
    count, rounds = bench.size(full=800, quick=100), bench.size(full=5, quick=1)
    with ExitStack() as stack:
        server = stack.enter_context(ServerProcess(bench.folder / "data", settings=SETTINGS))
        other = stack.enter_context(ServerProcess(bench.folder / "other", settings=SETTINGS))
        echo, _ = stack.enter_context(raw.started("echo"))
        _fill(server.address, bench.size(full=300, quick=50))
        _fill(other.address, 1)

        def fetches() -> Latencies:
            return _small_fetches(server.address, count)

        def others() -> Latencies:
            return _small_fetches(other.address, count)

        def echoes() -> Latencies:
            return raw.echo_round_trips(echo, count, pause_s=0.001)

        few = min(rounds, REFERENCE_ROUNDS_MAX)
        alone = {
            one: [one() for _ in range(number)]
            for one, number in ((fetches, rounds), (others, few), (echoes, few))
        }
        answers = []
        for words, low in (("", False), (" (traffic at nice 10)", True))[: bench.size(full=2, quick=1)]:
            with _greedy(server.address, "scan", low), _greedy(server.address, "load", low):
                time.sleep(beside.SETTLE_S)
                before = _bulk(server)
                busy = [fetches() for _ in range(rounds)]
                notes = _rates(before, _bulk(server))
                question = f"small fetch under a full scan and a bulk load, p99{words}"
                answers.append(beside.answer(question, busy, alone[fetches], counts=not low, notes=notes))
                if not low:
                    # What the same traffic does to those who have nothing to do with it.
                    answers += [
                        beside.answer(f"  reference: {name}, p99", [one() for _ in range(few)], alone[one])
                        for name, one in (
                            ("the same fetch from an idle second server", others),
                            ("an echo of 100 bytes by an idle process", echoes),
                        )
                    ]
    return [*answers, _crowd(bench)]


def _bulk(server: ServerProcess) -> tuple[float, float, float, float]:
    """Seconds now, bytes in, bytes out, seconds of pauses, so far."""
    names = ("request_bytes_total", "response_bytes_total")
    moved = [beside.metric(server.http_address, f"strom_rpc_{name}") for name in names]
    paused = beside.metric(server.http_address, "strom_bulk_paused_seconds_total")
    return time.monotonic(), moved[0], moved[1], paused


def _rates(before: tuple[float, ...], after: tuple[float, ...]) -> dict[str, object]:
    seconds, moved_in, moved_out, paused = (now - then for now, then in zip(after, before, strict=True))
    return {
        "bulk_in_mb_per_s": moved_in / seconds / 1e6,
        "bulk_out_mb_per_s": moved_out / seconds / 1e6,
        "bulk_paused_share": paused / seconds,
    }


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


def _small_fetches(address: str, count: int) -> Latencies:
    """Seconds of each read of a 100-row table, one after the other; fewer than ``count`` when they take too long."""

    async def run() -> list[float]:
        async with await aio.connect(address) as db:
            table = await db.table("small")
            seconds: list[float] = []
            end = time.perf_counter() + ROUND_S_MAX
            for i in range(count + 50):
                began = time.perf_counter()
                if began > end and len(seconds) >= CALLS_MIN:
                    break
                found = await table.scan(start=0, end=100).to_arrow()
                if i >= 50:
                    seconds.append(time.perf_counter() - began)
                assert found.num_rows == 100
            return seconds

    return asyncio.run(run())


@contextmanager
def _greedy(address: str, role: str, low_priority: bool) -> Iterator[Process]:
    command = [sys.executable, "-m", "benchmarks.log_fairness", role, address, "low" if low_priority else ""]
    with subprocess.Popen(
        command, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "going\n"
        try:
            yield process
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
    rounds = bench.size(full=50, quick=5)

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
    beside.step_back(sys.argv[3] == "low")
    {"scan": _scan_for_ever, "load": _load_for_ever}[sys.argv[1]](sys.argv[2])
