"""One call after the other from a process of its own, and when each was answered: who waits notices every pause.

Loops that take turns are stopped in between (``rest``), so that each has the machine to itself.

``python -m benchmarks.call_loop appends|upserts|lookups ADDRESS TABLE FILE``, until its input ends. The file gets
a line for each call: when it began and when it was answered, on the clock that all processes of the machine share, and
how it failed.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

import strom
from benchmarks.key_rows import INT_KEY
from benchmarks.workload import small_batch

ROOT = Path(__file__).parent.parent
APART_S = 0.002
"""Between an answer and the next call: the loops are there to notice pauses, not to use up the processor."""
END_TIMEOUT_S = 5.0
KEYS = 1000
TAIL_BYTES = 4096

Call = Callable[[int], object]


@dataclass
class CallLoop:
    """A loop that runs, or has run; it tells when it has ended."""

    began: list[int] = field(default_factory=list)
    """When each call that was answered began, in nanoseconds."""
    answered: list[int] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    failed_at: list[int] = field(default_factory=list)
    """When each call that failed had failed."""
    told: Path | None = None
    """Where a running loop writes its calls."""
    process: subprocess.Popen[str] | None = None

    def rest(self) -> None:
        """Freeze a running loop; the call that it waits for may be answered meanwhile."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it run again."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def goes_on(self, since: int) -> bool:
        """Whether a call of a running loop that began after this moment was answered."""
        assert self.told is not None
        with self.told.open("rb") as calls:
            calls.seek(max(0, calls.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = calls.read().decode(errors="replace").split("\n")[1:-1]
        return any(int(began) > since and not error for began, _, error in _parts(lines))

    def pause_s(self, began: int, ended: int) -> float:
        """The longest time without an answer that was not over at ``began`` and had begun by ``ended``."""
        first = max(bisect_left(self.answered, began), 1)
        last = bisect_left(self.answered, ended)
        times = [*self.answered[first - 1 : last + 1]]
        if last == len(self.answered):
            times.append(ended)  # nothing came any more
        return max(b - a for a, b in pairwise(times)) / 1e9

    def errors(self, began: int, ended: int) -> list[str]:
        """How the calls failed that ended in this time."""
        return [error for error, at in zip(self.failed, self.failed_at, strict=True) if began <= at <= ended]

    def seconds(self, began: int, ended: int) -> list[float]:
        """How long each call took that was answered in this time."""
        calls = zip(self.began, self.answered, strict=True)
        return [(b - a) / 1e9 for a, b in calls if began <= a and b <= ended]


@contextmanager
def calling(
    kind: str, address: str, table: str, *, module: str = "benchmarks.call_loop"
) -> Iterator[CallLoop]:
    """Calls while the block runs; what they met is known after it, also if the last one was never answered."""
    with tempfile.NamedTemporaryFile("r", prefix="strom-bench-calls-") as calls:
        loop = CallLoop(told=Path(calls.name))
        command = [sys.executable, "-m", module, kind, address, table, calls.name]
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "running\n":
                raise RuntimeError(f"the loop of {kind} did not start")
            loop.process = process
            yield loop
            loop.go_on()
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        _read(loop, calls.read())


def _parts(lines: Iterable[str]) -> Iterator[list[str]]:
    """When a call began and ended, and its error or nothing."""
    return (line.split(" ", 2) for line in lines)


def _read(loop: CallLoop, told: str) -> None:
    for began, answered, error in _parts(told.splitlines()):
        if error:
            loop.failed.append(error)
            loop.failed_at.append(int(answered))
        else:
            loop.began.append(int(began))
            loop.answered.append(int(answered))


def run(call: Call, path: str) -> None:
    """Call until the input ends; a line for each call."""
    call(0)
    number = 0
    with open(path, "w", buffering=1) as told:
        print("running", flush=True)
        while not select.select([sys.stdin], [], [], APART_S)[0]:
            began, error = time.monotonic_ns(), ""
            try:
                call(number)
            except Exception as problem:
                error = repr(problem).replace("\n", " ")
            number += 1
            told.write(f"{began} {time.monotonic_ns()} {error}\n")


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
    kind, address, name, path = arguments
    with strom.connect(address) as db:
        run({"appends": appends, "upserts": upserts, "lookups": lookups}[kind](db.table(name)), path)


if __name__ == "__main__":
    main(sys.argv[1:])
