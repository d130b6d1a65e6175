"""A stop watch that prints how long each step took."""

from __future__ import annotations


class Watch:
    """Prints a step with the time since the last one."""

    def __init__(self) -> None:
        from strom.runtime.clock import SystemClock

        self._clock = SystemClock()
        self._since = self._clock.monotonic()

    def now(self) -> float:
        """Seconds on the clock that never goes back."""
        return self._clock.monotonic()

    def lap(self) -> float:
        """Seconds since the last step."""
        now = self._clock.monotonic()
        seconds, self._since = now - self._since, now
        return seconds

    def say(self, text: str) -> None:
        """What was done."""
        print(f"{bracketed(self.lap())} {text}", flush=True)


def bracketed(seconds: float) -> str:
    """A time of fixed width."""
    return f"[{seconds * 1000:5.0f} ms]" if seconds < 1 else f"[{seconds:6.2f} s]"
