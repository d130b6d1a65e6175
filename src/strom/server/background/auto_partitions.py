"""Partitions that come and go by time: created ahead, dropped when they are old enough.

What to create and drop is decided by the coordinator's rules; this only asks at the right moments: now and again, and
at once when a table with auto-partitioning appears or changes. A partition of a table in the lake is dropped once the
lake holds all of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from strom.coordinator import commands
from strom.coordinator.catalog import Catalog
from strom.errors import StromError
from strom.model import properties
from strom.model.lake import LakeKey
from strom.model.table import Table
from strom.runtime.clock import Clock
from strom.server.catalog_view import CatalogView
from strom.server.lake_places import is_in_lake

AskEnds = Callable[[int], Awaitable[Mapping[LakeKey, int]]]
"""Where the buckets of a table end; those that do not answer are left out."""

ENABLED = "table.auto-partition.enabled"
"""Looked at first: this runs on every change of the catalog, and few tables have it."""

logger = logging.getLogger(__name__)


async def _no_ends(table_id: int) -> Mapping[LakeKey, int]:
    return {}


class AutoPartitions:
    """Keeps the partitions of every table that wants it."""

    def __init__(self, view: CatalogView, clock: Clock, *, every_ms: int) -> None:
        self._view = view
        self.ask_ends: AskEnds = _no_ends
        self._clock = clock
        self._every_s = every_ms / 1000
        self._known: dict[int, Table] = {}
        self._appeared = asyncio.Event()
        view.watch(self._look)

    async def run(self) -> None:
        """Round after round, for ever."""
        while True:
            await self.round()
            self._appeared.clear()
            try:
                await asyncio.wait_for(self._appeared.wait(), self._every_s)
            except TimeoutError:
                pass  # nothing new: it is simply time for the next round

    async def round(self) -> None:
        """Look at every table once."""
        self._known = self._wanting(self._view.catalog)
        for table_id in self._known:
            try:
                ends = await self.ask_ends(table_id) if is_in_lake(self._view.catalog, table_id) else None
                await self._view.perform(
                    commands.auto_partition, table_id, now_ms=self._clock.now_ms(), ends=ends
                )
            except StromError as error:
                # Dropped meanwhile, or too many partitions: the other tables go on.
                logger.warning("auto-partitioning table %s: %s", table_id, error)

    def _look(self, catalog: Catalog) -> None:
        wanting = self._wanting(catalog)
        if any(self._known.get(table_id) is not table for table_id, table in wanting.items()):
            self._appeared.set()

    def _wanting(self, catalog: Catalog) -> dict[int, Table]:
        return {
            table.table_id: table
            for table in catalog.all_tables()
            if ENABLED in table.description.properties
            and properties.auto_partition(table.description.properties, table.description) is not None
        }
