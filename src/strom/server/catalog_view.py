"""The catalog as one process sees it, and the one way to change it.

Reading is free: the catalog is an immutable value. Changing waits for the disk, so it leaves the loop, one change at a
time. Where several processes share the metadata, each looks for changes of the others: before it answers by
name, when it meets an id it does not know, and many times a second anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from strom.coordinator import commands
from strom.coordinator.catalog import Catalog
from strom.coordinator.coordinator import Coordinator
from strom.runtime.tasks import Offload

FOLLOW_S = 0.05

Watcher = Callable[[Catalog], None]


class CatalogView:
    """The newest catalog this process knows."""

    def __init__(self, coordinator: Coordinator, offload: Offload, *, alone: bool) -> None:
        self._coordinator = coordinator
        self._offload = offload
        self._alone = alone
        self._changing = asyncio.Lock()
        self._watchers: list[Watcher] = []
        self._told = coordinator.catalog.version

    @property
    def catalog(self) -> Catalog:
        """What this process knows; others may have changed it a moment ago."""
        return self._coordinator.catalog

    def watch(self, watcher: Watcher) -> None:
        """Call ``watcher`` on the loop with every new catalog."""
        self._watchers.append(watcher)

    def fresh(self) -> Catalog:
        """The catalog including what other processes have changed.

        Synchronous on purpose: calls that meet an unknown id keep their order. It costs microseconds unless
        something did change.
        """
        if not self._alone:
            self._coordinator.refresh()
            self._tell()
        return self._coordinator.catalog

    async def perform(self, command: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Plan and commit a command of ``coordinator.commands``; its result."""
        async with self._changing:
            result = await self._offload.run(lambda: self._coordinator.perform(command, *arguments, **named))
        self._tell()
        return result

    def allocate_numbers(self, table_id: int, count: int) -> range:
        """The next numbers of an auto-increment column; in any thread but the loop's, for it waits for the disk."""
        return self._coordinator.perform(commands.allocate_numbers, table_id, count)

    async def follow(self) -> None:
        """Look for changes of other processes, for ever; nobody else changes what is ours alone."""
        while not self._alone:
            await asyncio.sleep(FOLLOW_S)
            self.fresh()

    def _tell(self) -> None:
        catalog = self._coordinator.catalog
        if catalog.version != self._told:
            self._told = catalog.version
            for watcher in self._watchers:
                watcher(catalog)
