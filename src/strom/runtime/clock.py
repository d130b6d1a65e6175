"""Time, passed in as an argument."""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def sleep(seconds: float) -> None:
    """Block this thread. For threads and standalone programs, never on an event loop."""
    time.sleep(seconds)


def thread_s() -> float:
    """CPU seconds of this thread. They do not advance while it waits for a core or for the interpreter."""
    return time.thread_time()


class Uptime(NamedTuple):
    """How long the machine has been up, including sleep. Two values of one boot give the time between them."""

    boot: str
    """Identifies the boot; empty if unknown."""
    ms: int

    def since(self, earlier: Uptime) -> int | None:
        """Milliseconds between the two; None if the machine was rebooted in between."""
        known = self.boot == earlier.boot != "" and self.ms >= earlier.ms
        return self.ms - earlier.ms if known else None


class Clock(Protocol):
    """Tells the time. ``now_ms`` may jump (people set clocks), ``monotonic`` never goes back."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""

    def monotonic(self) -> float:
        """Seconds since a fixed instant."""

    def uptime(self) -> Uptime:
        """Advances across processes until the machine is rebooted."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def uptime(self) -> Uptime:
        # A clock that also advances while the machine sleeps, if there is one.
        clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        return Uptime(_boot(), time.clock_gettime_ns(clock) // 1_000_000)


@lru_cache(maxsize=1)
def _boot() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
