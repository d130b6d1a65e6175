"""What the active coordinator has changed, every server hears before its client does.

A client asks any server, and the peer's clients take the first "not found" for the truth. So the answer to a change of
names waits until the servers know of it: those that answer heartbeats, and the coordinators that stand by. Whoever does
not answer in time is not waited for; it looks in the metadata before it says that something is not there
(``server/calls/catalog/second_look.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from strom.errors import StromError
from strom.protocol.api_keys import HEAR, Api
from strom.protocol.message import Message
from strom.protocol.messages.inner import HearRequest, HearResponse
from strom.rpc.call import Call
from strom.server.calls.dispatch import CallHandler
from strom.server.links.inner_link import InnerLink
from strom.server.links.server_links import ServerLinks
from strom.server.tablets.catalog_view import CatalogView
from strom.server.tablets.shared_turn import SharedTurn

HEARD_S = 1.0
"""How long a change waits for a server: longer than it takes to notice that one is silent."""

logger = logging.getLogger(__name__)


class Hearing:
    """Whether the others have heard, of one coordinator. Changes that come together share the calls."""

    def __init__(
        self, view: CatalogView, links: ServerLinks, name: str, alive: Callable[[], Collection[int]]
    ) -> None:
        """``name``: of this coordinator. ``alive``: the tablet servers that answer."""
        self._view = view
        self._links = links
        self._name = name
        self._alive = alive
        self._turns: dict[int | str, SharedTurn] = {}

    async def spread(self, version: int) -> None:
        """Return when every other server that answers knows this version, or after a while."""
        assert self._view.catalog.version >= version
        coordinators = self._view.catalog.coordinators.keys() - {self._name}
        asked: list[int | str] = [*sorted(self._alive()), *sorted(coordinators)]
        for gone in self._turns.keys() - set(asked):
            del self._turns[gone]
        await asyncio.gather(*(self._heard(one) for one in asked))

    async def _heard(self, server: int | str) -> None:
        turn = self._turns.get(server)
        if turn is None:
            turn = self._turns[server] = SharedTurn(lambda: self._ask(server))
        try:
            async with asyncio.timeout(HEARD_S):
                await turn()
        except TimeoutError:
            logger.info("server %s has not heard of a change in time", server)

    async def _ask(self, server: int | str) -> None:
        """Ask for what this coordinator knows now, so that it counts for everybody who asked before."""
        request = HearRequest(version=self._view.catalog.version)
        try:
            await self._link(server).call(HEAR, request, timeout_s=HEARD_S)
        except StromError as error:
            logger.info("server %s has not heard of a change: %s", server, error.message)

    def _link(self, server: int | str) -> InnerLink:
        return self._links.to(server) if isinstance(server, int) else self._links.to_coordinator(server)


class HearingCalls:
    """Answers in every server of a cluster."""

    def __init__(self, view: CatalogView) -> None:
        self._view = view

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {HEAR: self.hear}

    async def hear(self, call: Call) -> Message:
        """Answer once this server knows the version."""
        request: HearRequest = call.request
        return HearResponse(version=(await self._view.reached(request.version)).version)
