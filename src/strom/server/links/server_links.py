"""Links to all servers of a cluster, at the addresses that the metadata has of them."""

from __future__ import annotations

from strom.coordinator.catalog import Catalog, ListenerAddress
from strom.protocol.api_keys import Api, Request, Response
from strom.runtime.world import World
from strom.server.links.inner_link import INNER_LISTENER, InnerLink
from strom.server.tablets.catalog_view import CatalogChange, CatalogView


class ServerLinks:
    """One link per tablet server, which follows it to a new address, and one per address of a coordinator.

    A former active coordinator still answers what it was asked before another took over.
    """

    def __init__(self, world: World, secret: str, view: CatalogView) -> None:
        self._world = world
        self._secret = secret
        self._view = view
        self._links: dict[int, InnerLink] = {}
        self._coordinators: dict[ListenerAddress | None, InnerLink] = {}
        view.watch(self._follow)

    @property
    def active(self) -> InnerLink:
        """The link to whoever is the active coordinator now."""
        return self._to_coordinator(active_address(self._view.catalog), "the active coordinator")

    def to_coordinator(self, name: str) -> InnerLink:
        """The link to a coordinator that is announced."""
        found = self._view.catalog.coordinators.get(name)
        address = None if found is None else found.listeners.get(INNER_LISTENER)
        return self._to_coordinator(address, f"coordinator {name}")

    def _to_coordinator(self, address: ListenerAddress | None, name: str) -> InnerLink:
        link = self._coordinators.get(address)
        if link is None:
            link = self._coordinators[address] = InnerLink(self._world, self._secret, name, address)
        return link

    def to(self, server_id: int) -> InnerLink:
        """The link to a tablet server; its calls fail with Disconnected while the metadata has no address of it."""
        link = self._links.get(server_id)
        if link is None:
            address = server_address(self._view.catalog, server_id)
            link = InnerLink(self._world, self._secret, f"tablet server {server_id}", address)
            self._links[server_id] = link
        return link

    async def ask(
        self, server_id: int, api: Api[Request, Response], request: Request, timeout_s: float
    ) -> Response:
        """A tablet server's answer."""
        return await self.to(server_id).call(api, request, timeout_s=timeout_s)

    def close(self) -> None:
        """Close every connection."""
        for link in (*self._links.values(), *self._coordinators.values()):
            link.close()

    def _follow(self, change: CatalogChange) -> None:
        if not change.touched.servers:
            return
        for server_id, link in self._links.items():
            address = server_address(change.catalog, server_id)
            if link.address != address:
                link.point_to(address)


def server_address(catalog: Catalog, server_id: int) -> ListenerAddress | None:
    """Where a tablet server takes inner calls."""
    server = catalog.servers.get(server_id)
    return None if server is None else server.listeners.get(INNER_LISTENER)


def active_address(catalog: Catalog) -> ListenerAddress | None:
    """Where the active coordinator takes inner calls."""
    return None if catalog.active is None else catalog.active.listeners.get(INNER_LISTENER)
