"""Time, as a thing that is passed in."""

from __future__ import annotations

import time
from typing import Protocol


def sleep(seconds: float) -> None:
    """Let this thread wait: for threads and programs of their own, never on a loop."""
    time.sleep(seconds)


def thread_s() -> float:
    """Seconds that this thread has had a core. While it waits for one, or for the interpreter, they stand still."""
    return time.thread_time()


class Clock(Protocol):
    """Tells the time. ``now_ms`` may jump (people set clocks), ``monotonic`` never goes back."""

    def now_ms(self) -> int:
        """Milliseconds since 1970, UTC."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
