"""How long until a one-row append reaches a tailing reader in another process?

Expected: the median at most 15 asyncio echo round trips (durability `os`). The row takes: encode, socket,
check and write, answer of the waiting fetch, socket, decode: two socket hops as the echo, plus about half a millisecond
of Python; neither side hands the row to another thread. `group` adds one fdatasync. p99 is reported.

Row and echo are measured in the same rhythm, because after a pause everything is cold (a lone echo takes four times
as long 2 ms after the last one). Back to back: the next begins when the last is answered. Quiet: 2 ms apart. Half of
the echoes come before the rows and half after them, so that a machine that changes meanwhile changes both.
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

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.float64())])
RHYTHMS = {"back to back": 0.0, "2 ms apart": 0.002}
WARM_UP = 200


def measure(bench: Bench) -> list[Answer]:
    count = bench.size(full=2000, quick=150)
    answers = []
    for durability, target in (("os", Target(15, at_least=False)), ("group", None)):
        rhythms = list(RHYTHMS.items())[: bench.size(full=2, quick=2 if durability == "os" else 1)]
        for words, pause in rhythms:
            with raw.started("echo") as (port, _):
                echoes = _echoes(port, count // 2, pause)
                figure = _samples(
                    _latencies(bench.folder / f"{durability}-{pause}", durability, count, pause)
                )
                echo = _samples(echoes + _echoes(port, count // 2, pause))
            answers.append(
                Answer(
                    question=f"one-row append to a tailing reader, median ({durability}, {words})",
                    figure=figure,
                    reference=echo,
                    reference_name="asyncio echo",
                    ratio=figure.median / echo.median,
                    target=target,
                    notes={"p99_us": _p99(figure), "echo_p99_us": _p99(echo)},
                )
            )
    return answers


def _echoes(port: int, count: int, pause_s: float) -> list[float]:
    raw.echo_round_trips(port, WARM_UP)
    return raw.echo_round_trips(port, count, pause_s=pause_s)


def _samples(seconds: list[float]) -> Samples:
    return Samples(tuple(1e6 * value for value in seconds), "µs", sum(seconds), 0.0)


def _p99(samples: Samples) -> float:
    return statistics.quantiles(samples.values, n=100)[98]


def _latencies(folder: Path, durability: str, count: int, pause_s: float) -> list[float]:
    """Seconds from just before ``append`` until the row is in the reader's hands."""
    total = count + WARM_UP
    with (
        ServerProcess(folder, settings={"durability": durability}) as server,
        strom.connect(server.address) as db,
    ):
        table = db.create_table("t", SCHEMA)
        command = [sys.executable, "-m", "benchmarks.log_latency", server.address, str(total)]
        root = Path(__file__).parent.parent
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "ready\n"
            sent = _append(table, total, pause_s)
            arrived = json.loads(reader.stdout.readline())
    waits = [(after - before) / 1e9 for before, after in zip(sent, arrived, strict=True)]
    return waits[WARM_UP:]


def _append(table: strom.Table, count: int, pause_s: float) -> list[int]:
    """Append one row after the other; when each was given to ``append`` (the monotonic clock is the machine's)."""
    rows = [pa.record_batch([[i], ["x"], [float(i)]], schema=SCHEMA) for i in range(count)]
    sent = []
    with table.writer() as writer:
        for row in rows:
            sent.append(time.monotonic_ns())
            writer.append(row)
            writer.flush()
            if pause_s:
                time.sleep(pause_s)
    return sent


def _read(address: str, count: int) -> None:
    """The reader's side: tail, and note when each row came."""
    arrived = [0] * count
    left = count
    with strom.connect(address) as db, db.table("t").tail(start="earliest") as tail:
        print("ready", flush=True)
        for batch in tail:
            now = time.monotonic_ns()
            for number in batch.data.column("id").to_pylist():
                arrived[number] = now
                left -= 1
            if not left:
                break
    print(json.dumps(arrived), flush=True)


if __name__ == "__main__":
    _read(sys.argv[1], int(sys.argv[2]))
