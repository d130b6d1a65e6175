"""Waiting for a server that says how far it is: it is told to people, and no timeout strikes while it gets on.

A server compiles what primary-key tables need once after an installation or upgrade, and answers KernelsCompiling
meanwhile. Timeouts are there for servers that are stuck, so they count from the last step it made.
"""

from __future__ import annotations

import logging

from strom.errors import KernelsCompiling, StromError
from strom.runtime.clock import Clock

TELL_EVERY_S = 2.0
FORGET_S = 60.0
"""After so long without a word what a server says is news again: another table may need more."""

logger = logging.getLogger(__name__)


class Patience:
    """What one client heard of its servers' progress."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: set[str] = set()
        self._heard_at = float("-inf")
        self._told_at = float("-inf")
        self.moved_at = float("-inf")
        """When a server was last seen to get on, on the monotonic clock."""

    def hear(self, error: StromError) -> None:
        """Of an error after which a call is repeated."""
        if not isinstance(error, KernelsCompiling):
            return
        now = self._clock.monotonic()
        if now - self._heard_at > FORGET_S:
            self._heard = set()
        self._heard_at = now
        if error.message in self._heard:
            return  # the same step, or one that fails and is tried again and again
        self._heard.add(error.message)
        self.moved_at = now
        if self.moved_at - self._told_at >= TELL_EVERY_S:
            self._told_at = self.moved_at
            logger.warning("the server is %s; waiting for it", error.message)
