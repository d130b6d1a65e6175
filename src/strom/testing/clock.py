"""Clocks for tests: one moved by hand, one that follows a virtual loop."""

from __future__ import annotations

from collections.abc import Callable

from strom.runtime.clock import Uptime

START_MS = 1_700_000_000_000


class ManualClock:
    """Time stands still until a test moves it."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = float(now_ms)
        self._monotonic = 0.0
        self._up = 0.0
        self._boots = 1

    def now_ms(self) -> int:
        return int(self._now_ms)

    def uptime(self) -> Uptime:
        return Uptime(f"boot-{self._boots}", int(self._up * 1000))

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        assert seconds >= 0
        self.sleep(seconds)
        self._monotonic += seconds

    def sleep(self, seconds: float) -> None:
        """Let time pass while the machine sleeps: ``monotonic`` does not notice."""
        self._now_ms += seconds * 1000
        self._up += seconds

    def boot(self, seconds: float = 0.0) -> None:
        """Reboot the machine after it was off for this long."""
        self._now_ms += seconds * 1000
        self._up = 0.0
        self._boots += 1

    def set_now_ms(self, now_ms: int) -> None:
        """Set the machine's clock, perhaps back; ``monotonic`` does not notice."""
        self._now_ms = float(now_ms)


class LoopClock:
    """The time of an event loop: ``LoopClock(loop.time)`` of a :class:`~strom.testing.loop.VirtualLoop`."""

    def __init__(self, time: Callable[[], float], start_ms: int = START_MS) -> None:
        self._time = time
        self._start_ms = start_ms

    def now_ms(self) -> int:
        return self._start_ms + int(self._time() * 1000)

    def monotonic(self) -> float:
        return self._time()

    def uptime(self) -> Uptime:
        return Uptime("simulated", int(self._time() * 1000))
