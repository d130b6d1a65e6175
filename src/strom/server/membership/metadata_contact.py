"""Whether this process can reach the metadata: who cannot does not know whether others have taken its place.

After ``replica.session.timeout`` without an answer of the store, a server stops serving until there is one again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from strom.runtime.metrics import Metrics
from strom.server.status.concern import Concern

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

    def facts(self) -> dict[str, Any]:
        """For those who watch the cluster."""
        return {"metadata_silent_s": self._silent_s(), "metadata_lost": self.lost}

    def follow(self, metrics: Metrics) -> None:
        """Register the gauge."""
        metrics.gauge(
            "strom_metadata_silent_seconds", "For how long ZooKeeper has not answered this process"
        ).follow(self._silent_s)

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


def contact_concerns(contact: MetadataContact, name: str) -> list[Concern]:
    """What is wrong while the process of this name has no contact."""
    if not contact.lost:
        return []
    silent_s = contact.facts()["metadata_silent_s"]
    return [
        Concern(
            "bad",
            "metadata_silent",
            f"{name} has not reached ZooKeeper for {silent_s:.0f} s: nothing that needs the metadata is decided here",
            "look at the network between them, and whether ZooKeeper has a majority",
        )
    ]
