"""What the active coordinator does about a rebalance that is under way: it begins moves, and sees to their end.

Everything that is needed to go on is in the metadata (``coordinator/operations/rebalances.py``): a coordinator that
takes over continues where the last one was. Bringing about what a bucket wants is the part of ``failover.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from strom.coordinator import commands
from strom.coordinator.operations.rebalances import plan_moves, progress_of
from strom.errors import NotCoordinator, StromError
from strom.replication.rebalance import EVACUATION
from strom.runtime.clock import Clock
from strom.runtime.tasks import Tasks
from strom.server.tablets.catalog_view import CatalogChange, TermView

LOOK_S = 1.0
BETWEEN_S = 0.1
"""Entries change all the time; it is looked this often at most."""
LEADERS_AT_ONCE = 50

logger = logging.getLogger(__name__)


class Rebalancing:
    """For one term."""

    def __init__(
        self, view: TermView, able: Callable[[], frozenset[int]], clock: Clock, *, at_once: int
    ) -> None:
        """``able``: the servers that answer and are not about to stop. ``at_once``: copies that a server makes."""
        self._view = view
        self._able = able
        self._clock = clock
        self._at_once = at_once
        self._tasks = Tasks()
        self._woken = asyncio.Event()

    def start(self) -> None:
        """Go on with what is under way, and follow what happens."""
        self._view.watch(self._follow)
        self._tasks.spawn(self._run(), "rebalance")

    async def close(self) -> None:
        """The term is over."""
        await self._tasks.close()

    def _follow(self, change: CatalogChange) -> None:
        if change.touched.servers or change.touched.buckets:
            self._woken.set()

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._look()
            except NotCoordinator:
                return  # whoever is active now goes on
            except StromError as error:
                logger.warning("going on with a rebalance failed: %s", error)
            await asyncio.sleep(BETWEEN_S)
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._woken.wait()
            except TimeoutError:
                pass  # look all the same

    async def _look(self) -> None:
        record = self._view.fresh().operations.rebalance
        if record is None or not record.under_way:
            return
        if record.state == "cancelling":
            while await self._view.perform(
                commands.take_back, alive=self._able(), now_ms=self._clock.now_ms()
            ):
                pass
            logger.info("rebalance %s is cancelled", record.rebalance_id)
            return
        await self._view.perform(commands.begin_moves, alive=self._able(), at_once=self._at_once)
        await self._lead()
        if await self._view.perform(
            commands.finish_rebalance, alive=self._able(), now_ms=self._clock.now_ms()
        ):
            logger.info("rebalance %s is done", record.rebalance_id)
        else:
            await self._extend()

    async def _lead(self) -> None:
        """Let those lead that shall, where all copies are made."""
        catalog, able = self._view.catalog, self._able()
        ready = [
            one.bucket
            for one in progress_of(catalog, able).moving
            if (entry := catalog.replicas.get(one.bucket)) is not None and not entry.moving
        ]
        if ready:
            await self._view.perform(commands.prefer_leaders, ready[:LEADERS_AT_ONCE], alive=able)

    async def _extend(self) -> None:
        """Buckets that came to a server that leaves after the moves were planned go, too."""
        catalog, able = self._view.catalog, self._able()
        record, progress = catalog.operations.rebalance, progress_of(catalog, able)
        if record is None or not record.leaving or progress.waiting or progress.moving:
            return
        moves = plan_moves(catalog, alive=able, leaving=record.leaving, goals=EVACUATION)
        more = [one for one in moves if set(record.leaving) & set(one.before) and one.before != one.after]
        await self._view.perform(commands.extend_rebalance, more)
