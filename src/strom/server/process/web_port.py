"""The HTTP port of a server: metrics, health and the status page."""

from __future__ import annotations

from typing import Protocol

from strom.rpc.http_server import HttpAnswer, HttpServer
from strom.runtime.settings import Settings
from strom.runtime.world import World
from strom.server.process.listeners import is_loopback

THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Pages(Protocol):
    """What is shown."""

    async def respond(self, path: str) -> HttpAnswer:
        """The answer for a path."""


class WebPort:
    """Closed, until it is opened and unless the settings turn it off."""

    def __init__(self, world: World, settings: Settings) -> None:
        self._network = world.network
        self._host: str = settings["http.host"]
        self._port: int = settings["http.port"]
        self._server: HttpServer | None = None
        self._pages: Pages
        self.address: str | None = None
        """``host:port``, while it is open."""

    async def open(self, pages: Pages) -> None:
        """Show these pages; in the place of others, if it is open."""
        self._pages = pages
        if self._port < 0 or self._server is not None:
            return
        server = HttpServer(self._respond, hosts=set(THIS_MACHINE) if is_loopback(self._host) else None)
        bound = await server.start(self._network, self._host, self._port)
        self._server, self.address = server, f"{self._host}:{bound}"

    async def _respond(self, path: str) -> HttpAnswer:
        return await self._pages.respond(path)

    async def close(self) -> None:
        """Close the port; fine when it is not open."""
        if self._server is not None:
            await self._server.close()
            self._server = None
