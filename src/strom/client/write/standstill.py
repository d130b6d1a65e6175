"""Says aloud that rows wait: a server refuses them for now (its disk is full, it starts), and the writer tries again.

Without it ``flush()`` would be silent until the delivery time is over.
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
        """A batch has to be sent again. Told after a while, and now and again from then on."""
        if isinstance(error, KernelsCompiling):
            return  # that is told with how far it is (``Patience``)
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
        waited = now - self._since
        if waited < FIRST_AFTER_S or (self._told_at is not None and now - self._told_at < AGAIN_AFTER_S):
            return
        self._told_at = now
        logger.warning(
            "%s: %d batches have waited %.0f s, as the server takes none for now: %s. Trying again",
            self._table,
            batches,
            waited,
            error.message,
        )

    def acknowledged(self) -> None:
        """The server takes rows (again)."""
        if self._since is None:
            return
        if self._told_at is not None:
            logger.warning("%s: the server takes rows again", self._table)
        self._since = self._told_at = None
