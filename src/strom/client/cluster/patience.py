"""Waiting for a server that reports progress: the progress is logged, and timeouts count from its last step.

After an installation or upgrade a server compiles kernels for primary-key tables once, and answers KernelsCompiling
meanwhile. Timeouts are for servers that are stuck, not for ones that advance.
"""

from __future__ import annotations

import logging

from strom.errors import KernelsCompiling, StromError
from strom.runtime.clock import Clock

LOG_EVERY_S = 2.0
FORGET_S = 60.0
"""After this long without a report, a repeated step counts as progress again: another table may need more."""

logger = logging.getLogger(__name__)


class Patience:
    """The progress that one client's servers reported."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: set[str] = set()
        self._heard_at = float("-inf")
        self._logged_at = float("-inf")
        self.moved_at = float("-inf")
        """When a server last made progress, on the monotonic clock."""

    def hear(self, error: StromError) -> None:
        """Note an error after which a call is retried."""
        if not isinstance(error, KernelsCompiling):
            return
        now = self._clock.monotonic()
        if now - self._heard_at > FORGET_S:
            self._heard = set()
        self._heard_at = now
        if error.message in self._heard:
            return  # the same step, or one that keeps failing
        self._heard.add(error.message)
        self.moved_at = now
        if self.moved_at - self._logged_at >= LOG_EVERY_S:
            self._logged_at = self.moved_at
            logger.warning("the server is %s; waiting for it", error.message)
