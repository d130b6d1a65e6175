"""Who is told of changes of the catalog: on the loop, one change after the other, each with what it has not seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from strom.coordinator.catalog import Catalog
from strom.coordinator.coordinator import Coordinator
from strom.coordinator.touched import PartitionOf, Touched

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


@dataclass(slots=True, eq=False)
class _Watch:
    """A watcher, and the catalog it has seen: that moves on only when the watcher returns."""

    watcher: Watcher
    catalog: Catalog
    touched: Touched = field(default_factory=Touched)
    ended: bool = False


class CatalogWatchers:
    """The watchers of one process."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._watches: list[_Watch] = []
        self._telling = False
        self._seen = coordinator.news().catalog

    def add(self, watcher: Watcher) -> Callable[[], None]:
        """Call ``watcher`` with every change from now on; return the function that ends that."""
        self.tell()
        watch = _Watch(watcher, self._seen)
        self._watches.append(watch)

        def forget() -> None:
            watch.ended = True
            if watch in self._watches:
                self._watches.remove(watch)

        return forget

    def tell(self) -> None:
        """Call the watchers with what is new. One that looks again is not called recursively: its turn comes."""
        if self._telling:
            return
        self._telling = True
        try:
            while self._take_news():
                for watch in list(self._watches):
                    self._tell_one(watch)
        finally:
            self._telling = False

    def _take_news(self) -> bool:
        """Whether something was touched since the last time; if so, every watcher is due."""
        news = self._coordinator.news()
        self._seen = news.catalog
        for watch in self._watches:
            watch.touched |= news.touched
        return bool(news.touched)

    def _tell_one(self, watch: _Watch) -> None:
        if not watch.touched or watch.ended:
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
