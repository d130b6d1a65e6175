"""Remembers, in the data folder, the time that a server has seen and trusted; the next start relies on it."""

from __future__ import annotations

import asyncio
import logging

from strom.errors import StromError
from strom.runtime.clock import Uptime
from strom.runtime.files import Files
from strom.runtime.metrics import Metrics
from strom.runtime.tasks import Offload
from strom.runtime.trusted_time import ClockSighting, TrustedTime
from strom.runtime.world import World

KEEP_EVERY_S = 60.0
FILE_PREFIX = "clock-"
_DIGITS_MAX = 20
_BYTES_MAX = 200

logger = logging.getLogger(__name__)


class ClockWatch:
    """Looks at the clock periodically, and stores what it saw."""

    def __init__(
        self,
        world: World,
        folder: str,
        name: str,
        *,
        trust_after_ms: int,
        metrics: Metrics | None = None,
        tells: bool = True,
    ) -> None:
        """``tells``: whether it logs what it finds; of all watchers of one machine's clock, one does."""
        self._files: Files = world.files
        self._offload: Offload = world.offload
        self._path = f"{folder}/{FILE_PREFIX}{name}"
        self.time = TrustedTime(world.clock, trust_after_ms=trust_after_ms, seen=self._seen(), tells=tells)
        if metrics is not None:
            metrics.gauge(
                "strom_clock_ahead_seconds", "How far the clock is ahead of what is trusted when rows expire"
            ).follow(lambda: self.time.ahead_ms() / 1000)

    def _seen(self) -> ClockSighting | None:
        """What was seen last; None when that is unknown."""
        if not self._files.exists(self._path):
            return None
        words = self._files.read_whole(self._path)[:_BYTES_MAX].decode("ascii", "replace").split()
        numbers = [int(word) for word in words if word.isdigit() and len(word) <= _DIGITS_MAX]
        match words, numbers:
            case [_, boot, _, _, _], [trusted, up, ahead, since]:
                return ClockSighting(trusted, Uptime(boot, up), ahead, since)
            case [_], [trusted]:  # written by an older version
                return ClockSighting(trusted)
        return None

    async def run(self) -> None:
        """Run forever."""
        while True:
            await self.keep()
            await asyncio.sleep(KEEP_EVERY_S)

    async def keep(self) -> None:
        """Look at the clock, and store the time."""
        seen = self.time.seen()
        assert seen.uptime is not None
        boot = seen.uptime.boot or "-"
        content = f"{seen.trusted_ms} {boot} {seen.uptime.ms} {seen.ahead_ms} {seen.apart_since_ms}\n"
        try:
            await self._offload.run(self._files.write_whole, self._path, content.encode())
        except (StromError, OSError) as error:
            logger.warning("cannot store the time in %s: %s", self._path, error)
