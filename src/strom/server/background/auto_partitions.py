"""Partitions by time: created ahead, dropped when they are old enough.

The coordinator's rules decide what to create and drop; this only asks at the right moments: periodically, and at once
when a table with auto-partitioning appears or changes. A partition of a table in the lake is dropped once the lake
holds all of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from strom.coordinator import commands
from strom.coordinator.partitions import is_due
from strom.errors import StromError
from strom.model import properties
from strom.model.lake.lake import LakeKey
from strom.model.table import TableEntry
from strom.runtime.clock import Clock
from strom.server.tablets.catalog_view import CatalogChange, CatalogView
from strom.server.tablets.lake_places import is_in_lake

AskEnds = Callable[[int], Awaitable[Mapping[LakeKey, int]]]
"""Where the buckets of a table end; buckets that do not answer are left out."""

ENABLED = "table.auto-partition.enabled"
"""Checked first: few tables have it."""

logger = logging.getLogger(__name__)


async def _no_ends(table_id: int) -> Mapping[LakeKey, int]:
    return {}


class AutoPartitions:
    """Creates and drops the partitions of every auto-partitioned table."""

    def __init__(
        self, view: CatalogView, clock: Clock, *, every_ms: int, expiry: Clock | None = None
    ) -> None:
        """``expiry``: the clock to drop by; the other clock decides what to create."""
        self._view = view
        self._expiry = expiry or clock
        self.ask_ends: AskEnds = _no_ends
        self._clock = clock
        self._every_s = every_ms / 1000
        self._wanting = {
            table.table_id: table for table in view.catalog.all_tables() if _wants_partitions(table)
        }
        self._appeared: dict[int, None] = {}
        """Tables that are new, or changed, since they were last looked at."""
        self._woken = asyncio.Event()
        view.watch(self._follow)

    async def run(self) -> None:
        """Run forever; between rounds, look at new tables alone."""
        while True:
            await self.round()
            try:
                async with asyncio.timeout(self._every_s):
                    while True:
                        await self._woken.wait()
                        self._woken.clear()
                        await self._look_at(list(self._appeared))
            except TimeoutError:
                pass  # it is time for the next round

    async def round(self) -> None:
        """Look at every table once."""
        await self._look_at(list(self._wanting))

    async def _look_at(self, table_ids: Sequence[int]) -> None:
        for table_id in table_ids:
            self._appeared.pop(table_id, None)
            try:
                await self._keep(table_id)
            except StromError as error:
                # Dropped meanwhile, or too many partitions: go on with the other tables.
                logger.warning("auto-partitioning table %s: %s", table_id, error)
            await asyncio.sleep(0)  # there may be thousands: let others have their turn

    async def _keep(self, table_id: int) -> None:
        """Work out what is due here; commit only if something is."""
        catalog, now_ms, expire_ms = self._view.catalog, self._clock.now_ms(), self._expiry.now_ms()
        if not is_due(catalog, table_id, now_ms=now_ms, expire_ms=expire_ms):
            return
        ends = await self.ask_ends(table_id) if is_in_lake(catalog, table_id) else None
        await self._view.perform(
            commands.auto_partition, table_id, now_ms=now_ms, expire_ms=expire_ms, ends=ends
        )

    def _follow(self, change: CatalogChange) -> None:
        for table_id in sorted(change.tables):
            table = change.catalog.table_by_id(table_id)
            if table is None or not _wants_partitions(table):
                self._wanting.pop(table_id, None)
                self._appeared.pop(table_id, None)
            elif self._wanting.get(table_id) is not table:
                self._wanting[table_id] = table
                self._appeared[table_id] = None
                self._woken.set()


def _wants_partitions(table: TableEntry) -> bool:
    wanted = table.description.properties
    return ENABLED in wanted and properties.auto_partition(wanted, table.description) is not None
