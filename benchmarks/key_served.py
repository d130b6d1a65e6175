"""A primary-key table on a real server, loaded through the client."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import strom
from benchmarks.harness import Samples
from benchmarks.key_rows import Form, history
from strom.api import Table
from strom.testing.process import ServerProcess

SETTLED_TIMEOUT_S = 30.0
QUIET_LOOKS = 5
QUIET_LOOKS_QUICK = 2
"""So many looks without a job: the server looks twice a second, and a job on many rows takes seconds."""


@contextmanager
def served(
    folder: Path, settings: Mapping[str, object] | None = None
) -> Iterator[tuple[ServerProcess, strom.Database]]:
    """A server that does not wait for the disk, as RocksDB and Redis do not, and a connection to it."""
    with (
        ServerProcess(folder, settings={"durability": "os", **(settings or {})}) as server,
        strom.connect(server.address) as db,
    ):
        yield server, db


def load(table: Table, form: Form, keys: int, updates: int) -> None:
    """Fill a table: a random load, then random updates."""
    for numbers, version in history(keys, updates):
        table.upsert(form.rows(numbers, version))
    table.flush()


def properties(image: str) -> dict[str, str]:
    """Of a table with this changelog."""
    return {"table.changelog.image": image}


def quantile(latencies: list[float], share: float) -> float:
    """The latency that this share of the calls stays below."""
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def micros(latencies: list[float]) -> Samples:
    """Latencies in seconds as samples in microseconds."""
    return Samples(tuple(one * 1e6 for one in latencies), "µs", sum(latencies), 0.0)


def one(value: float, unit: str) -> Samples:
    """A single figure."""
    return Samples((value,), unit, 0.0, 0.0)


def timed(call: object, arguments: list[object]) -> list[float]:
    """Seconds of each call."""
    clock = time.perf_counter
    found = []
    for argument in arguments:
        began = clock()
        call(argument)  # type: ignore[operator]
        found.append(clock() - began)
    return found


def job_count(server: ServerProcess) -> int:
    """Background jobs of primary-key buckets that have ended so far."""
    with urllib.request.urlopen(f"http://{server.http_address}/metrics", timeout=10) as page:
        text = page.read().decode()
    return sum(
        int(float(line.rpartition(" ")[2]))
        for line in text.splitlines()
        if line.startswith("strom_key_jobs_total")
    )


def settle(server: ServerProcess, looks: int = QUIET_LOOKS) -> None:
    """Wait until carries, merges and snapshots of what was written have been done."""
    began, before, quiet = time.monotonic(), -1, 0
    while quiet < looks and time.monotonic() - began < SETTLED_TIMEOUT_S:
        done = job_count(server)
        quiet = quiet + 1 if done == before else 0
        before = done
        time.sleep(0.7)
