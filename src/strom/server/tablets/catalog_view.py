"""The catalog as one process sees it, and the one way to change it.

Reading is free: the catalog is an immutable value. Changing waits for the disk, so it leaves the loop, one change at a
time. Where several processes share the metadata, each looks for changes of the others: before it answers by name, when
it meets an unknown id, when the store hears of one, and, if the store hears of none, many times a second. On several
machines the store hears of them a little later; ``caught_up`` asks it for everything that was acknowledged anywhere.

Any thread may look. Watchers are called on the loop only, one change after the other, with what was touched since their
last call: what they keep per table belongs to the loop, and unchanged tables cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from strom.coordinator import commands
from strom.coordinator.catalog import Catalog
from strom.coordinator.coordinator import Coordinator
from strom.coordinator.term import Term
from strom.errors import RequestTimeout
from strom.runtime.tasks import Offload
from strom.server.tablets.catalog_watchers import CatalogChange, CatalogWatchers, Watcher
from strom.server.tablets.shared_turn import SharedTurn

__all__ = ["CatalogChange", "CatalogView", "Spread", "TermView"]

FOLLOW_S = 0.05
"""How often a process looks where the store does not hear of changes by itself."""
CATCH_UP_EVERY_S = 0.02
"""A process asks the store itself for news no more often than this, however many ask for names that nobody has."""
CATCH_UP_S = 3.0
"""How long a question waits for a store that does not answer."""
HEAR_S = 0.1
"""How long news that are known to exist may take on their usual way, before the store itself is asked for them."""

Spread = Callable[[int], Awaitable[None]]
"""Returns when the other servers have heard of a version of the metadata."""


class CatalogView:
    """The newest catalog this process knows."""

    def __init__(self, coordinator: Coordinator, offload: Offload, *, alone: bool) -> None:
        self._coordinator = coordinator
        self._offload = offload
        self._alone = alone
        self._changing = asyncio.Lock()
        self._performing: set[asyncio.Task[Any]] = set()
        self._watchers = CatalogWatchers(coordinator)
        self._catch_up = SharedTurn(lambda: offload.run(coordinator.catch_up), pause_s=CATCH_UP_EVERY_S)
        self._expecting: dict[asyncio.Future[None], int] = {}
        """Who waits for which version."""

    @property
    def catalog(self) -> Catalog:
        """What this process knows; another may have changed it a moment ago."""
        return self._coordinator.catalog

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call ``watcher`` on the loop with every change from now on; return the function that ends that."""
        return self._watchers.add(watcher)

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

    async def caught_up(self) -> Catalog:
        """The catalog including every change that was acknowledged before, by whatever process.

        Many calls share one read of the store. Raises ``Retry`` if the store does not answer.
        """
        if not self._alone:
            try:
                async with asyncio.timeout(CATCH_UP_S):
                    await self._catch_up()
            except TimeoutError:
                raise RequestTimeout("the metadata cannot be read right now: try again") from None
        return self.fresh()

    async def reached(self, version: int) -> Catalog:
        """The catalog of this version or a later one. The version exists: another process was told of it."""
        if self.fresh().version < version:
            expecting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._expecting[expecting] = version
            try:
                await asyncio.wait([expecting], timeout=HEAR_S)
            finally:
                del self._expecting[expecting]
        return self.catalog if self.catalog.version >= version else await self.caught_up()

    def _tell(self) -> None:
        """Call the watchers with what is new, and whoever waits for it."""
        self._watchers.tell()
        version = self.catalog.version
        for expecting, wanted in list(self._expecting.items()):
            if wanted <= version and not expecting.done():
                expecting.set_result(None)

    async def perform(self, command: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Plan and commit a command of ``coordinator.commands``; its result.

        A command that was begun is completed, and watchers learn of it, even if the caller stops waiting.
        """
        task = asyncio.ensure_future(self._perform(lambda: self._commit(command, *arguments, **named)))
        self._performing.add(task)
        task.add_done_callback(self._performed)
        return await asyncio.shield(task)

    async def perform_everywhere(self, command: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """As ``perform``; when it returns, the other servers that answer know of the change.

        For what clients ask for by name: they may ask any server next.
        """
        return await self.perform(command, *arguments, **named)

    def _commit(self, command: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return self._coordinator.perform(command, *arguments, **named)

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
        if self._alone:
            return
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake(version: int) -> None:
            with suppress(RuntimeError):  # the loop has ended, and this call was on its way
                loop.call_soon_threadsafe(woken.set)

        forget = self._coordinator.watch(wake)
        try:
            while True:
                self.fresh()
                try:
                    async with asyncio.timeout(None if self._coordinator.hears else FOLLOW_S):
                        await woken.wait()
                except TimeoutError:
                    pass  # look all the same
                woken.clear()
        finally:
            forget()


class TermView(CatalogView):
    """The same for the time in which this process is the active coordinator: its changes are fenced by the term, and
    its watchers end with it."""

    def __init__(self, view: CatalogView, term: Term, spread: Spread | None = None) -> None:
        """``spread``: how the other servers hear of what was changed; without it, in their own time."""
        self._coordinator, self._offload, self._alone = view._coordinator, view._offload, view._alone
        self._changing, self._performing, self._watchers = view._changing, view._performing, view._watchers
        self._catch_up, self._expecting = view._catch_up, view._expecting
        self.term = term
        self._spread = spread
        self._watching: list[Callable[[], None]] = []

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """As every view, until the term ends."""
        forget = super().watch(watcher)
        self._watching.append(forget)
        return forget

    async def perform_everywhere(self, command: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        result = await self.perform(command, *arguments, **named)
        if self._spread is not None:
            await self._spread(self.catalog.version)
        return result

    def _commit(self, command: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return self._coordinator.perform_in(self.term, command, *arguments, **named)

    def end(self) -> None:
        """The term is over."""
        for forget in self._watching:
            forget()


def _on_a_loop() -> bool:
    """Whether this thread runs the loop: lanes and readers have none."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
