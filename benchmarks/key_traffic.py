"""Traffic from another process: ``python -m benchmarks.key_traffic upserts|scans|sets …``, until its input ends.

It runs at normal priority, or at nice 10 where that is asked for.
"""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

import strom
from benchmarks import beside
from benchmarks.beside import Process
from benchmarks.key_rows import INT_KEY
from benchmarks.redis_process import connect
from strom.errors import Expired


def upserts(address: str, keys: str, rows: str, per_second: str) -> None:
    """Upserts of ``rows`` random keys below ``keys`` at a time; so many batches a second, 0 for as many as go."""
    random = np.random.default_rng(11)
    count, size, rate = int(keys), int(rows), float(per_second)
    batches = [INT_KEY.rows(random.integers(0, count, size), 1000 + i) for i in range(50)]
    with strom.connect(address) as db:
        table = db.table("t")
        for number in _paced(rate):
            table.upsert(batches[number % 50])
            if number % 20 == 19 or rate:
                table.flush()


def scans(address: str) -> None:
    """Full scans, one after the other."""
    with strom.connect(address) as db:
        table = db.table("t")
        for _ in _paced(0.0):
            with suppress(Expired):  # so slow that the server let go of the instant: the next one
                for _batch in table.scan():
                    pass


def sets(port: str, keys: str, rows: str, per_second: str) -> None:
    """The same for Redis: pipelined SETs."""
    random = np.random.default_rng(11)
    count, size = int(keys), int(rows)
    client = connect(int(port))
    numbers = random.integers(0, count, size)
    encoded = INT_KEY.encoded(numbers, INT_KEY.rows(numbers))
    for _ in _paced(float(per_second)):
        with client.pipeline(transaction=False) as pipeline:
            for key, value in zip(*encoded, strict=True):
                pipeline.set(key, value)
            pipeline.execute()


def _paced(per_second: float) -> Iterator[int]:
    print("running", flush=True)
    due, number = time.monotonic(), 0
    while True:
        yield number
        number += 1
        due += 1 / per_second if per_second else 0.0
        wait = max(0.0, due - time.monotonic())
        if select.select([sys.stdin], [], [], wait)[0]:
            return


@contextmanager
def running(*words: str, low_priority: bool = False) -> Iterator[Process]:
    """Traffic while the block runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.key_traffic", "low" if low_priority else "", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"running\n", f"{words} did not start"
        yield process
        assert process.poll() is None, f"{words} ended early"
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


if __name__ == "__main__":
    beside.step_back(sys.argv[1] == "low")
    {"upserts": upserts, "scans": scans, "sets": sets}[sys.argv[2]](*sys.argv[3:])
