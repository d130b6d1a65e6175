"""Forgets one-shot sinks: batch writes and unnamed transactions whose rows are visible and whose stages are too old
to be listed again."""

from __future__ import annotations

import asyncio
import logging

from strom.coordinator import commands
from strom.errors import StromError
from strom.runtime.clock import Clock
from strom.server.background.decision_rollout import DecisionRollout
from strom.server.tablets.catalog_view import CatalogView

EVERY_S = 10.0

logger = logging.getLogger(__name__)


class OneShotSinks:
    """Checks periodically."""

    def __init__(self, view: CatalogView, rollout: DecisionRollout, clock: Clock) -> None:
        self._view = view
        self._rollout = rollout
        self._clock = clock

    async def run(self) -> None:
        """Run forever."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.round()
            except StromError as error:
                logger.warning("forgetting one-shot sinks: %s", error)

    async def round(self) -> list[str]:
        """Forget what can be forgotten; returns the names of the sinks."""
        catalog, now_ms = self._view.catalog, self._clock.now_ms()
        applied = {
            name: row.number
            for name, row in catalog.sinks.items()
            if row.one_shot and row.deadline_ms <= now_ms and not self._rollout.pending(catalog, row)
        }
        if not applied:
            return []
        forgotten: list[str] = await self._view.perform(commands.forget_sinks, applied, now_ms=now_ms)
        self._rollout.forget(forgotten)
        self._rollout.tidy()
        return forgotten
