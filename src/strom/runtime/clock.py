"""Time, as a thing that is passed in."""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def sleep(seconds: float) -> None:
    """Let this thread wait: for threads and programs of their own, never on a loop."""
    time.sleep(seconds)


def thread_s() -> float:
    """Seconds that this thread has had a core. While it waits for one, or for the interpreter, they stand still."""
    return time.thread_time()


class Uptime(NamedTuple):
    """How long the machine has been up, its sleep included. Two of one boot tell how much time lies between them."""

    boot: str
    """Which start of the machine it was; empty where nobody knows."""
    ms: int

    def since(self, earlier: Uptime) -> int | None:
        """Milliseconds between the two; None where that cannot be told: the machine was started in between."""
        known = self.boot == earlier.boot != "" and self.ms >= earlier.ms
        return self.ms - earlier.ms if known else None


class Clock(Protocol):
    """Tells the time. ``now_ms`` may jump (people set clocks), ``monotonic`` never goes back."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""

    def uptime(self) -> Uptime:
        """Counts on while no process runs, until the machine is started again."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def uptime(self) -> Uptime:
        # The clock that also counts while the machine sleeps, where there is one.
        clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return Uptime(_boot(), time.clock_gettime_ns(clock) // 1_000_000)


@lru_cache(maxsize=1)
def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
