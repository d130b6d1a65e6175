"""The compiled kernels of primary-key tables: loaded in the background as soon as there is such a table.

A server of log tables never loads them. Loading takes about a second from the cache; without one they are compiled,
which takes a minute or two, once, and says so. Whoever needs them meanwhile waits, the others do not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from strom.errors import ServerStopping
from strom.model.table import Table
from strom.runtime.clock import Clock
from strom.runtime.tasks import Offload, Tasks
from strom.server.catalog_view import CatalogChange, CatalogView
from strom.server.key_forms import load_kernels

LOADED_WITHIN_S = 10.0
"""What takes longer is compiling."""

logger = logging.getLogger(__name__)


class Kernels:
    """Loads the kernels once."""

    def __init__(self, offload: Offload, tasks: Tasks, clock: Clock) -> None:
        self._offload = offload
        self._tasks = tasks
        self._clock = clock
        self._begun = False

    def follow(self, view: CatalogView) -> None:
        """Load them when the catalog has a primary-key table, now or later."""
        view.watch(self._changed)
        self._look(view.catalog.all_tables())

    def _changed(self, change: CatalogChange) -> None:
        self._look(table for one in change.tables if (table := change.catalog.table_by_id(one)) is not None)

    def _look(self, tables: Iterable[Table]) -> None:
        if not self._begun and any(table.schema.primary_key for table in tables):
            self._begun = True
            with suppress(ServerStopping):
                self._tasks.spawn(self._load(), "load the kernels of primary-key tables")

    async def _load(self) -> None:
        began = self._clock.monotonic()
        loading = asyncio.ensure_future(self._offload.run(load_kernels))
        done, _ = await asyncio.wait([loading], timeout=LOADED_WITHIN_S)
        if not done:  # from the cache it takes a second
            logger.info("compiling the kernels of primary-key tables, which takes a minute or two, once")
        await loading
        logger.info("kernels of primary-key tables loaded in %.1f s", self._clock.monotonic() - began)
