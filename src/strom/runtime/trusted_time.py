"""The clock for deleting what is old (docs/decisions/0015-trusted-time.md).

People set clocks, and so do broken time servers. Deleting by the wall clock alone would delete everything when it leaps
a year ahead. This clock follows the wall clock while that advances like the machine's uptime, which includes sleep.
When the two diverge by more than ``LEAP_MS``, it continues at the pace of the uptime from the last trusted time, so
that rows expire as if nothing had happened. It follows the wall clock again once that was steady for
``trust_after_ms``: then the leap was intended.

A stop is not a leap. While the machine stays up, its uptime shows how long a server was down. After a reboot that is
unknown: then a clock that is up to ``STOP_MS`` ahead of the last known time is believed, unless it was wrong by about
as much before. Stamps cannot wait, so for them a stop of up to ``STAMPED_STOP_MS`` is believed.
"""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from typing import NamedTuple

from strom.runtime.clock import Clock, Uptime

LEAP_MS = 10 * 60 * 1000
#: Less is a clock that somebody set: no news.
STRIKING_MS = 24 * 60 * 60 * 1000
#: A machine that was off for so long is likelier than a clock that is wrong by as much. A month mistaken is more.
STOP_MS = 21 * STRIKING_MS
STAMPED_STOP_MS = 90 * STRIKING_MS

logger = logging.getLogger(__name__)


class ClockSighting(NamedTuple):
    """What a server knew about the time at its last look; the next start continues from there."""

    trusted_ms: int
    uptime: Uptime | None = None
    """The uptime at that look; None if an older version wrote it."""
    ahead_ms: int = 0
    """How far the clock was ahead of the trusted time."""
    apart_since_ms: int = 0
    """The uptime since when it was ahead."""


class TrustedTime:
    """A clock that does not follow leaps immediately. Thread-safe; ``now_ms`` also observes the clock."""

    def __init__(
        self, clock: Clock, *, trust_after_ms: int, seen: ClockSighting | None = None, tells: bool = True
    ) -> None:
        self._clock = clock
        self._trust_after_ms = trust_after_ms
        self._tells = tells
        self._lock = threading.Lock()
        up = clock.uptime()
        self._trusted_ms = clock.now_ms() if seen is None else seen.trusted_ms
        self._at_ms = up.ms
        """The uptime at that time."""
        self._apart_since_ms: int | None = None
        self._apart_ms = 0
        self._stop_ms = 0
        """How far ahead the clock may be after a stop of unknown length; 0 once it was followed."""
        if seen is not None:
            self._go_on(seen, up)

    def _go_on(self, seen: ClockSighting, up: Uptime) -> None:
        passed_ms = None if seen.uptime is None else up.since(seen.uptime)
        if passed_ms is None:
            self._stop_ms = min(STOP_MS, max(seen.ahead_ms - LEAP_MS, LEAP_MS)) if seen.ahead_ms else STOP_MS
            return
        self._at_ms = up.ms - passed_ms
        if seen.ahead_ms:
            self._apart_since_ms, self._apart_ms = seen.apart_since_ms, seen.ahead_ms

    def monotonic(self) -> float:
        """As the clock says."""
        return self._clock.monotonic()

    def uptime(self) -> Uptime:
        """As the clock says."""
        return self._clock.uptime()

    def now_ms(self) -> int:
        """The time to delete by: never ahead of the wall clock."""
        with self._lock:
            return self._look()[0]

    def stamp_ms(self) -> int:
        """The time to stamp writes with: the wall clock's, unless it leapt a day or more ahead of the trusted time.

        Timestamps of a log never decrease, so one stamp from next year would stay on everything written until then.
        """
        with self._lock:
            trusted_ms, now_ms = self._look()
            most_ms = STAMPED_STOP_MS if self._stop_ms else STRIKING_MS
        return trusted_ms if now_ms - trusted_ms >= most_ms else now_ms

    def ahead_ms(self) -> int:
        """How far the wall clock is ahead of the trusted time; 0 while it is trusted."""
        return self.seen().ahead_ms

    def seen(self) -> ClockSighting:
        """What the next start needs to know."""
        with self._lock:
            trusted_ms, _ = self._look()
            ahead_ms = max(self._apart_ms, 0) if self._apart_since_ms is not None else 0
            return ClockSighting(trusted_ms, self._clock.uptime(), ahead_ms, self._apart_since_ms or 0)

    def _look(self) -> tuple[int, int]:
        """The trusted time, and the wall clock's."""
        now_ms, up_ms = self._clock.now_ms(), self._clock.uptime().ms
        apart_ms = now_ms - (self._trusted_ms + up_ms - self._at_ms)
        if -LEAP_MS <= apart_ms <= max(LEAP_MS, self._stop_ms):
            self._follow(now_ms, up_ms)
        elif self._apart_since_ms is None or abs(apart_ms - self._apart_ms) > LEAP_MS:
            self._apart_since_ms, self._apart_ms = up_ms, apart_ms
            self._tell(apart_ms)
        elif up_ms - self._apart_since_ms >= self._trust_after_ms:
            if self._tells:
                logger.info("the clock was steady since it leapt: it is gone by again")
            self._follow(now_ms, up_ms)
        return min(now_ms, self._trusted_ms + up_ms - self._at_ms), now_ms

    def _follow(self, now_ms: int, up_ms: int) -> None:
        self._trusted_ms, self._at_ms = now_ms, up_ms
        self._apart_since_ms, self._apart_ms = None, 0
        self._stop_ms = 0

    def _tell(self, apart_ms: int) -> None:
        if not self._tells:
            return
        logger.log(
            logging.WARNING if abs(apart_ms) >= STRIKING_MS else logging.INFO,
            "the clock is %s %s what it should be by this server's count: nothing is deleted by it before it was "
            "steady for %s; if it is wrong, set it right",
            timedelta(seconds=abs(apart_ms) // 1000),
            "ahead of" if apart_ms > 0 else "behind",
            timedelta(milliseconds=self._trust_after_ms),
        )


class NotAhead:
    """A machine's clock, held back to what a server trusted when this was created."""

    def __init__(self, clock: Clock, trusted_ms: int) -> None:
        self._clock = clock
        self._ahead_ms = max(0, clock.now_ms() - trusted_ms)

    def now_ms(self) -> int:
        """The time to delete by."""
        return self._clock.now_ms() - self._ahead_ms

    def monotonic(self) -> float:
        """As the clock says."""
        return self._clock.monotonic()

    def uptime(self) -> Uptime:
        """As the clock says."""
        return self._clock.uptime()


class StampingClock:
    """The same time as a clock to stamp with."""

    def __init__(self, trusted: TrustedTime) -> None:
        self._trusted = trusted

    def now_ms(self) -> int:
        """See ``TrustedTime.stamp_ms``."""
        return self._trusted.stamp_ms()

    def monotonic(self) -> float:
        """As the clock says."""
        return self._trusted.monotonic()

    def uptime(self) -> Uptime:
        """As the clock says."""
        return self._trusted.uptime()
