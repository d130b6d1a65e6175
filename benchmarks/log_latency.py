"""How long until a one-row append reaches a tailing reader in another process?

Expected: the median at most 15 asyncio echo round trips (durability `os`). The row takes: hand-over to the client's
loop, encode, socket, check and write, wake the waiting fetch, socket, decode, hand-over to the reading thread: two
socket hops as the echo, plus about half a millisecond of Python. `group` adds one fdatasync. p99 is reported for both.

The echo's round trips follow each other at once, the rows do not: between them everybody sleeps and caches go cold,
which costs several times what the same work costs in a loop. So the notes also hold the echo at the rows' pace.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa

import strom
from benchmarks import raw
from benchmarks.harness import Answer, Bench, Samples, Target
from strom.testing.process import ServerProcess

SCHEMA = pa.schema([("sent_ns", pa.int64()), ("name", pa.string()), ("value", pa.float64())])

PAUSE_S = 0.002
"""One row at a time: the pace of a quiet stream, not a load."""


def measure(bench: Bench) -> list[Answer]:
    count = bench.size(full=2000, quick=400)
    with raw.started("echo") as (port, _):
        raw.echo_round_trips(port, 200)
        trips = raw.echo_round_trips(port, count)
        paced = statistics.median(raw.echo_round_trips(port, count, pause_s=PAUSE_S)) * 1e6
    echo = Samples(tuple(1e6 * seconds for seconds in trips), "µs", sum(trips), 0.0)
    answers = []
    for durability, target in (("os", Target(15, at_least=False)), ("group", None)):
        latencies = _latencies(bench.folder / durability, durability, count)
        figure = Samples(tuple(1e6 * seconds for seconds in latencies), "µs", sum(latencies), 0.0)
        answers.append(
            Answer(
                question=f"one-row append to a tailing reader, median ({durability})",
                figure=figure,
                reference=echo,
                reference_name="asyncio echo round trip",
                ratio=figure.median / echo.median,
                target=target,
                notes={
                    "p99_us": _p99(latencies) * 1e6,
                    "echo_p99_us": _p99(trips) * 1e6,
                    "echo_at_this_pace_us": paced,
                    "ratio_at_this_pace": figure.median / paced,
                },
            )
        )
    return answers


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def _latencies(folder: Path, durability: str, count: int) -> list[float]:
    warm_up = 100
    with (
        ServerProcess(folder, settings={"durability": durability}) as server,
        strom.connect(server.address) as db,
    ):
        table = db.create_table("t", SCHEMA)
        command = [sys.executable, "-m", "benchmarks.log_latency", server.address, str(count + warm_up)]
        root = Path(__file__).parent.parent
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, cwd=root
        ) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
            with table.writer() as writer:
                for i in range(count + warm_up):
                    row = {"sent_ns": [time.monotonic_ns()], "name": ["x"], "value": [float(i)]}
                    writer.append(pa.RecordBatch.from_pydict(row, schema=SCHEMA))
                    time.sleep(PAUSE_S)
            seen = json.loads(reader.stdout.readline())
    return [nanoseconds / 1e9 for nanoseconds in seen[warm_up:]]


def _read(address: str, count: int) -> None:
    """The reader's side: tail, and note how old each row is on arrival (the monotonic clock is the machine's)."""
    seen: list[int] = []
    with strom.connect(address) as db:
        tail = db.table("t").tail(start="earliest")
        print("ready", flush=True)
        for batch in tail:
            now = time.monotonic_ns()
            seen += [now - sent for sent in batch.data.column("sent_ns").to_pylist()]
            if len(seen) >= count:
                break
        tail.close()
    print(json.dumps(seen[:count]), flush=True)


if __name__ == "__main__":
    _read(sys.argv[1], int(sys.argv[2]))
