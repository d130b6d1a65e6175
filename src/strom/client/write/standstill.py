"""Logs that rows are waiting while a server refuses them (its disk is full, or it is starting) and the writer retries.

Without it ``flush()`` would be silent until the delivery timeout.
"""

from __future__ import annotations

import logging

from strom.errors import KernelsCompiling, StromError
from strom.runtime.clock import Clock

FIRST_AFTER_S = 3.0
AGAIN_AFTER_S = 10.0

logger = logging.getLogger(__name__)


class Standstill:
    """The refusals of one table's writer since its last acknowledgement."""

    def __init__(self, table: str, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._since: float | None = None
        self._told_at: float | None = None

    def refused(self, error: StromError, batches: int) -> None:
        """A batch has to be sent again. Logged after a while, and from then on at intervals."""
        if isinstance(error, KernelsCompiling):
            return  # ``Patience`` logs that, with its progress
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        waited = now - self._since
        if waited < FIRST_AFTER_S or (self._told_at is not None and now - self._told_at < AGAIN_AFTER_S):
            return
        self._told_at = now
        logger.warning(
            "%s: %d batches have waited %.0f s because the server refuses them for now: %s. Retrying",
            self._table,
            batches,
            waited,
            error.message,
        )

    def acknowledged(self) -> None:
        """The server accepts rows (again)."""
        if self._since is None:
            return
        if self._told_at is not None:
            logger.warning("%s: the server accepts rows again", self._table)
        self._since = self._told_at = None
