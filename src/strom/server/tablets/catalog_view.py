"""The catalog as one process sees it, and the one way to change it.

Reading is free: the catalog is an immutable value. Changing waits for the disk, so it leaves the loop, one change at a
time. Where several processes share the metadata, each looks for changes of the others: before it answers by name, when
it meets an unknown id, and many times a second anyway.

Any thread may look. Watchers are called on the loop only, one change after the other, with what was touched since their
last call: what they keep per table belongs to the loop, and unchanged tables cost nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from strom.coordinator import commands
from strom.coordinator.catalog import Catalog
from strom.coordinator.coordinator import Coordinator
from strom.coordinator.touched import PartitionOf, Touched
from strom.runtime.tasks import Offload

FOLLOW_S = 0.05
TELL_AGAIN_S = 5.0
"""After this pause a watcher that failed is called again, with everything that came meanwhile."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """What happened since a watcher's last call."""

    before: Catalog
    catalog: Catalog
    touched: Touched

    @property
    def tables(self) -> frozenset[int]:
        """Tables that were added, removed or changed, also in what the lake holds of them."""
        return self.touched.tables

    @property
    def partitions(self) -> frozenset[PartitionOf]:
        """Partitions that were added, removed or changed."""
        return self.touched.partitions


Watcher = Callable[[CatalogChange], None]


@dataclass(slots=True)
class _Watch:
    """A watcher, and the catalog it has seen: that moves on only when the watcher returns."""

    watcher: Watcher
    catalog: Catalog
    touched: Touched = field(default_factory=Touched)


class CatalogView:
    """The newest catalog this process knows."""

    def __init__(self, coordinator: Coordinator, offload: Offload, *, alone: bool) -> None:
        self._coordinator = coordinator
        self._offload = offload
        self._alone = alone
        self._changing = asyncio.Lock()
        self._performing: set[asyncio.Task[Any]] = set()
        self._watchers: list[_Watch] = []
        self._telling = False
        self._seen = coordinator.news().catalog

    @property
    def catalog(self) -> Catalog:
        """What this process knows; another may have changed it a moment ago."""
        return self._coordinator.catalog

    def watch(self, watcher: Watcher) -> None:
        """Call ``watcher`` on the loop with every change from now on."""
        self._tell()
        self._watchers.append(_Watch(watcher, self._seen))

    def fresh(self) -> Catalog:
        """The catalog including changes of other processes. In any thread; watchers are called on the loop only.

        Synchronous on purpose: calls that meet an unknown id keep their order. It costs microseconds unless something
        did change.
        """
        if not self._alone:
            self._coordinator.refresh()
            if _on_a_loop():
                self._tell()
        return self._coordinator.catalog

    async def perform(self, command: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Plan and commit a command of ``coordinator.commands``; its result.

        A command that was begun is completed, and watchers learn of it, even if the caller stops waiting.
        """
        task = asyncio.ensure_future(
            self._perform(lambda: self._coordinator.perform(command, *arguments, **named))
        )
        self._performing.add(task)
        task.add_done_callback(self._performed)
        return await asyncio.shield(task)

    async def _perform(self, commit: Callable[[], Any]) -> Any:
        async with self._changing:
            result = await self._offload.run(commit)
        self._tell()
        return result

    def _performed(self, task: asyncio.Task[Any]) -> None:
        self._performing.discard(task)
        if not task.cancelled():
            task.exception()  # the caller may have gone away: then nobody else looks at it

    def allocate_numbers(self, table_id: int, count: int) -> range:
        """The next numbers of an auto-increment column; not on the loop's thread, because it waits for the disk."""
        return self._coordinator.perform(commands.allocate_numbers, table_id, count)

    async def follow(self) -> None:
        """Look for changes of other processes, forever; unless this process is alone."""
        while not self._alone:
            await asyncio.sleep(FOLLOW_S)
            self.fresh()

    # --- telling ---------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Call the watchers with what is new. One that looks again is not called recursively: its turn comes."""
        if self._telling:
            return
        self._telling = True
        try:
            while self._take_news():
                for watch in self._watchers:
                    self._tell_one(watch)
        finally:
            self._telling = False

    def _take_news(self) -> bool:
        """Whether something was touched since the last time; if so, every watcher is due."""
        news = self._coordinator.news()
        self._seen = news.catalog
        for watch in self._watchers:
            watch.touched |= news.touched
        return bool(news.touched)

    def _tell_one(self, watch: _Watch) -> None:
        if not watch.touched:
            return
        change = CatalogChange(watch.catalog, self._seen, watch.touched)
        try:
            watch.watcher(change)
        except Exception:
            # What was committed stays so, and the others learn of it; this watcher keeps what it has not seen.
            logger.exception("following a change of the catalog failed; trying again in %s s", TELL_AGAIN_S)
            asyncio.get_running_loop().call_later(TELL_AGAIN_S, self._tell_again, watch)
        else:
            watch.catalog, watch.touched = change.catalog, Touched()

    def _tell_again(self, watch: _Watch) -> None:
        if not self._telling:
            self._tell_one(watch)


def _on_a_loop() -> bool:
    """Whether this thread runs the loop: lanes and readers have none."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
