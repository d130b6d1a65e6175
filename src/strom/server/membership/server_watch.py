"""One coordinator's watch over the cluster: it asks every tablet server, and the active coordinator if that is another.

Those who stand by watch as well, so that one of them knows who is there when it takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from strom.coordinator.catalog import Catalog
from strom.coordinator.liveness import Gone, Verdict
from strom.coordinator.term import NOBODY
from strom.protocol.messages.inner import HeartbeatResponse
from strom.server.links.server_links import ServerLinks
from strom.server.membership.heartbeats import Heartbeats
from strom.server.tablets.catalog_view import CatalogChange, CatalogView

ACTIVE = 0
"""The active coordinator's number among its own heartbeats."""
ACTIVE_PATIENCE = 2
"""The silence after which another coordinator takes over, in silences that cost a tablet server its buckets."""


class ServerWatch:
    """The heartbeats of one coordinator."""

    def __init__(
        self, view: CatalogView, links: ServerLinks, name: str, *, heartbeat_s: float, suspect_after_s: float
    ) -> None:
        """``name``: of this coordinator."""
        self._view = view
        self._links = links
        self._name = name
        self._watched: str | None = None
        """The coordinator that is asked as the active one."""
        self.on_verdicts: list[Callable[[Sequence[Verdict]], None]] = []
        """Called when tablet servers are suspected, or have returned."""
        self.on_active: Callable[[], None] = lambda: None
        """Called when the active coordinator is suspected, or has returned."""
        self._tablets = Heartbeats(
            heartbeat_s=heartbeat_s, suspect_after_s=suspect_after_s, decided=self._decided
        )
        self._active = Heartbeats(
            heartbeat_s=heartbeat_s,
            suspect_after_s=ACTIVE_PATIENCE * suspect_after_s,
            decided=lambda verdicts: self.on_active(),
        )
        view.watch(self._follow)

    @property
    def alive(self) -> frozenset[int]:
        """The tablet servers that answer."""
        return self._tablets.liveness.alive

    @property
    def gone(self) -> dict[int, Gone]:
        """The tablet servers that do not."""
        return self._tablets.gone

    @property
    def cut_from(self) -> dict[int, frozenset[int]]:
        """By tablet server that answers: the leaders that it follows and cannot reach, if there are any."""
        alive = self.alive
        return {one: leaders for one, leaders in self._tablets.cut_from.items() if leaders and one in alive}

    def is_silent(self, name: str) -> bool:
        """Whether the active coordinator of this name does not answer."""
        return name == self._watched and self._active.liveness.is_suspected(ACTIVE)

    async def run(self) -> None:
        """Watch, forever."""
        self._take(self._view.catalog)
        await asyncio.gather(self._tablets.run(), self._active.run())

    async def close(self) -> None:
        """Ask nobody any more."""
        await self._tablets.close()
        await self._active.close()

    def _decided(self, verdicts: Sequence[Verdict]) -> None:
        for callback in list(self.on_verdicts):
            callback(verdicts)

    def _follow(self, change: CatalogChange) -> None:
        if change.touched.servers:
            self._take(change.catalog)

    def _take(self, catalog: Catalog) -> None:
        for server_id in self._tablets.followed - catalog.servers.keys():
            self._tablets.forget(server_id)
        for server_id in sorted(catalog.servers.keys() - self._tablets.followed):
            self._tablets.follow(server_id, self._links.to(server_id), self._is_registered(server_id))
        active = NOBODY if catalog.active is None else catalog.active.name
        if active != self._watched:
            self._active.forget(ACTIVE)
            self._watched = active
            if active not in (self._name, NOBODY):
                self._active.follow(ACTIVE, self._links.active, lambda answer: answer.name == active)

    def _is_registered(self, server_id: int) -> Callable[[HeartbeatResponse], bool]:
        def compared(answer: HeartbeatResponse) -> bool:
            registration = self._view.catalog.registrations.get(server_id)
            return registration is not None and registration.incarnation == answer.incarnation

        return compared
