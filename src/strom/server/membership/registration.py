"""A tablet server tells the cluster that it is there, and makes sure that it is the only one of its number.

Its *registration* is an entry that stays: which process, on which disks, at which addresses. Beside it, the process is
*announced* for as long as it lives. A second server of the same number is refused while the first one answers. One that
does not answer may be dead, or cut off: then the second waits until the metadata do not announce the first any more.
Whoever finds another process registered in its place stops.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from strom.coordinator import commands, keys
from strom.coordinator.catalog import ServerEntry
from strom.coordinator.entries import encode_number
from strom.errors import Disconnected, InvalidSetting, RequestTimeout
from strom.metadata.store import Announcement, MetadataStore
from strom.protocol.api_keys import HEARTBEAT
from strom.protocol.messages.inner import HeartbeatRequest
from strom.runtime.tasks import Offload
from strom.runtime.world import World
from strom.server.links.inner_link import InnerLink
from strom.server.links.server_links import server_address
from strom.server.tablets.catalog_view import CatalogChange, CatalogView

PROBE_S = 1.0
AGAIN_S = 0.2

logger = logging.getLogger(__name__)


async def wait_for_number(world: World, secret: str, view: CatalogView, server_id: int) -> None:
    """Return when no other process is the tablet server of this number; InvalidSetting if one is."""
    told = False
    while True:
        catalog = view.fresh()
        announced, address = catalog.alive.get(server_id), server_address(catalog, server_id)
        if announced is None or address is None:
            return
        link = InnerLink(world, secret, f"tablet server {server_id}", address)
        try:
            answer = await link.call(HEARTBEAT, HeartbeatRequest(), timeout_s=PROBE_S)
            if answer.incarnation != announced:
                return  # another process has its port now
            raise InvalidSetting(
                f"tablet server {server_id} runs already, at {address.host}:{address.port}; stop it, or give this one "
                "another server.id",
                setting="server.id",
            )
        except Disconnected as error:
            if error.facts.get("refused"):
                return  # its process has ended
        except RequestTimeout:
            pass  # it may be paused, or cut off from here
        finally:
            link.close()
        if not told:
            logger.warning(
                "tablet server %s is announced at %s:%s and does not answer: waiting until it is gone",
                server_id,
                address.host,
                address.port,
            )
            told = True
        await asyncio.sleep(AGAIN_S)


class ServerRegistration:
    """The registration of this process."""

    def __init__(
        self, view: CatalogView, store: MetadataStore, offload: Offload, replaced: Callable[[], None]
    ) -> None:
        """``replaced`` is called when another process registered under this number."""
        self._view = view
        self._store = store
        self._offload = offload
        self._replaced = replaced
        self._entry: ServerEntry | None = None
        self._announced: Announcement | None = None

    async def register(self, entry: ServerEntry) -> None:
        """Register, and announce the process."""
        assert entry.registration is not None
        await self._view.perform(commands.register_server, entry)
        self._entry = entry
        key, value = keys.alive_server(entry.server_id), encode_number(entry.registration.incarnation)
        self._announced = await self._offload.run(self._store.announce, key, value)
        self._view.watch(self._follow)

    def _follow(self, change: CatalogChange) -> None:
        assert self._entry is not None
        assert self._entry.registration is not None
        found = change.catalog.registrations.get(self._entry.server_id)
        if found is not None and found.incarnation != self._entry.registration.incarnation:
            self._replaced()
