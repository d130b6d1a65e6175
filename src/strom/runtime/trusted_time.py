"""The time to go by when something is deleted because it is old.

People set clocks, and so do broken time servers. Whoever deletes by the wall clock alone deletes everything when it
leaps a year ahead. This clock follows the wall clock while that moves as the monotonic one does. When the two part by
more than ``LEAP_MS``, it goes on at the monotonic pace from what was trusted last, so that rows expire as if nothing
had happened; and it follows the wall clock again once that was steady for ``trust_after_ms``. Then a leap was meant.

A server that starts goes by the time that it saw last: a long stop looks like a leap, and costs nothing but patience.
Only stamps cannot wait: there a stop of up to ``STOP_MS`` is believed to have been one.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from strom.runtime.clock import Clock

LEAP_MS = 10 * 60 * 1000
#: Less is a machine that slept, or a server that was down: no news.
STRIKING_MS = 24 * 60 * 60 * 1000
#: A server that was down for so long is likelier than a clock that is wrong by as much.
STOP_MS = 90 * STRIKING_MS

logger = logging.getLogger(__name__)


class TrustedTime:
    """A clock that does not follow leaps at once. One thread at a time; ``now_ms`` is also a look at the clock."""

    def __init__(self, clock: Clock, *, trust_after_ms: int, seen_ms: int | None = None) -> None:
        self._clock = clock
        self._trust_after_ms = trust_after_ms
        self._trusted_ms = clock.now_ms() if seen_ms is None else seen_ms
        self._at = clock.monotonic()
        self._apart_since: float | None = None
        self._apart_ms = 0
        self._stopped = seen_ms is not None
        """Whether nobody counted while the two parted: before the first look, and while that leap lasts."""

    def monotonic(self) -> float:
        """As the clock says."""
        return self._clock.monotonic()

    def now_ms(self) -> int:
        """The time to delete by: never ahead of the wall clock."""
        now_ms, at = self._clock.now_ms(), self._clock.monotonic()
        expected_ms = self._trusted_ms + int((at - self._at) * 1000)
        apart_ms = now_ms - expected_ms
        if abs(apart_ms) <= LEAP_MS:
            self._follow(now_ms, at)
        elif self._apart_since is None or abs(apart_ms - self._apart_ms) > LEAP_MS:
            self._stopped = self._stopped and self._apart_since is None
            self._apart_since, self._apart_ms = at, apart_ms
            self._tell(apart_ms)
        elif (at - self._apart_since) * 1000 >= self._trust_after_ms:
            logger.info("the clock was steady since it leapt: it is gone by again")
            self._follow(now_ms, at)
        return min(now_ms, self._trusted_ms + int((at - self._at) * 1000))

    def stamp_ms(self) -> int:
        """The time to stamp writes with: the wall clock's, unless it leapt a day or more ahead of what is trusted.

        Timestamps of a log never fall, so one stamp of next year would stay on everything written until then.
        """
        trusted_ms, now_ms = self.now_ms(), self._clock.now_ms()
        return trusted_ms if now_ms - trusted_ms >= (STOP_MS if self._stopped else STRIKING_MS) else now_ms

    def ahead_ms(self) -> int:
        """How far the wall clock is ahead of what is trusted; 0 while it is trusted."""
        self.now_ms()
        return max(self._apart_ms, 0) if self._apart_since is not None else 0

    def _follow(self, now_ms: int, at: float) -> None:
        self._trusted_ms, self._at = now_ms, at
        self._apart_since, self._apart_ms = None, 0
        self._stopped = False

    def _tell(self, apart_ms: int) -> None:
        logger.log(
            logging.WARNING if abs(apart_ms) >= STRIKING_MS else logging.INFO,
            "the clock is %s %s what it should be by this server's count: nothing is deleted by it before it was "
            "steady for %s; if it is wrong, set it right",
            timedelta(seconds=abs(apart_ms) // 1000),
            "ahead of" if apart_ms > 0 else "behind",
            timedelta(milliseconds=self._trust_after_ms),
        )


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
