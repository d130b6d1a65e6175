"""One call after the other from a process of its own, and when each was answered: who waits notices every pause.

``python -m benchmarks.call_loop appends|upserts|lookups ADDRESS TABLE``, until its input ends. Then it tells when each
call was answered, on the clock that all processes of the machine share, and which calls failed.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import strom
from benchmarks.key_rows import INT_KEY
from benchmarks.workload import small_batch

ROOT = Path(__file__).parent.parent
APART_S = 0.002
"""Between an answer and the next call: the loops are there to notice pauses, not to use up the processor."""
END_TIMEOUT_S = 60.0
KEYS = 1000

Call = Callable[[int], object]


@dataclass
class CallLoop:
    """A loop that runs, or has run; it tells when it has ended."""

    answered: list[int] = field(default_factory=list)
    """When each call was answered, in nanoseconds."""
    failed: list[str] = field(default_factory=list)

    def pause_s(self, began: int, ended: int) -> float:
        """The longest time without an answer that was not over at ``began`` and had begun by ``ended``."""
        first = max(bisect_left(self.answered, began), 1)
        last = bisect_left(self.answered, ended)
        gaps = (b - a for a, b in zip(self.answered[first - 1 : last], self.answered[first:], strict=False))
        return max(gaps) / 1e9


@contextmanager
def calling(kind: str, address: str, table: str) -> Iterator[CallLoop]:
    """Calls while the block runs; what they met is known after it."""
    command = [sys.executable, "-m", "benchmarks.call_loop", kind, address, table]
    loop = CallLoop()
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "running\n":
                raise RuntimeError(f"the loop of {kind} did not start")
            yield loop
            told, _ = process.communicate(timeout=END_TIMEOUT_S)
            loop.answered, loop.failed = json.loads(told)
        finally:
            process.kill()


def run(call: Call) -> None:
    """Call until the input ends."""
    call(0)
    print("running", flush=True)
    answered: list[int] = []
    failed: list[str] = []
    while not select.select([sys.stdin], [], [], APART_S)[0]:
        try:
            call(len(answered))
        except Exception as error:
            failed.append(repr(error))
        else:
            answered.append(time.monotonic_ns())
    print(json.dumps([answered, failed]))


def appends(table: strom.Table) -> Call:
    """One row, and its acknowledgement."""
    row = small_batch(1)

    def append(number: int) -> None:
        table.append(row)
        table.flush()

    return append


def upserts(table: strom.Table) -> Call:
    """One key, and its acknowledgement."""
    rows = [INT_KEY.rows(np.array([key], np.int64)) for key in range(KEYS)]

    def upsert(number: int) -> None:
        table.upsert(rows[number % KEYS])
        table.flush()

    return upsert


def lookups(table: strom.Table) -> Call:
    """One row by its key."""

    def lookup(number: int) -> None:
        assert table.lookup({"id": number % KEYS}) is not None

    return lookup


def main(arguments: Sequence[str]) -> None:
    kind, address, name = arguments
    with strom.connect(address) as db:
        run({"appends": appends, "upserts": upserts, "lookups": lookups}[kind](db.table(name)))


if __name__ == "__main__":
    main(sys.argv[1:])
