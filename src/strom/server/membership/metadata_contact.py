"""Whether this process can reach the metadata: who cannot does not know whether others have taken its place.

After ``replica.session.timeout`` without an answer of the store, a server stops serving until there is one again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

LOOK_S = 0.1
"""How often it is looked while there is no contact; otherwise when it could be lost at the earliest."""

logger = logging.getLogger(__name__)


class MetadataContact:
    """Looks at how long the store has been silent."""

    def __init__(self, silent_s: Callable[[], float], timeout_s: float) -> None:
        """``silent_s``: for how long the store has not answered."""
        self._silent_s = silent_s
        self._timeout_s = timeout_s
        self._lost = False
        self.on_change: list[Callable[[], None]] = []
        """Called on the loop when contact is lost, and when it is back."""

    @property
    def lost(self) -> bool:
        """Whether there is no contact, as of the last look or right now."""
        return self._lost or self._silent_s() >= self._timeout_s

    async def run(self) -> None:
        """Look, forever."""
        while True:
            silent_s = self._silent_s()
            lost = silent_s >= self._timeout_s
            if lost != self._lost:
                self._lost = lost
                self._tell()
            await asyncio.sleep(LOOK_S if lost else max(self._timeout_s - silent_s, LOOK_S / 10))

    def _tell(self) -> None:
        if self._lost:
            logger.error(
                "the metadata did not answer for %g s: not serving until it does, others may have taken over",
                self._timeout_s,
            )
        else:
            logger.info("the metadata answers again")
        for callback in self.on_change:
            callback()
