"""Looks at a client's connections while something is awaited, and gives up those of servers that are gone.

It looks from outside, a few times a second: a call itself costs nothing more. What counts is that bytes come, whoever
waits for them; requests that are sent meanwhile say nothing of the server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from strom.client.cluster.address import Address
from strom.client.cluster.silent_servers import SilentServers, given_up
from strom.errors import StromError
from strom.runtime.clock import Clock

QUIET_S = 0.6
"""Nothing came for so long though something is awaited: longer than a tail's request waits for rows."""
LOOK_S = 0.1
IDLE_LOOK_S = 0.25
"""While nothing is awaited."""


class WatchedConnection(Protocol):
    """A connection of either kind."""

    @property
    def owes_answer(self) -> bool:
        """Whether something is awaited."""

    @property
    def bytes_received(self) -> int:
        """Bytes received in total."""

    def abandon(self, reason: StromError) -> None:
        """End it: whoever waits gets this error."""


@dataclass(slots=True)
class _Seen:
    bytes: int
    since: float


class ConnectionWatch:
    """The watch of one client. Belongs to its loop."""

    def __init__(
        self,
        silent: SilentServers,
        clock: Clock,
        connections: Callable[[], Iterable[tuple[Address, WatchedConnection]]],
        has_threads: Callable[[], bool],
    ) -> None:
        """``has_threads``: whether threads have connections of their own, which await answers without a word here."""
        self._has_threads = has_threads
        self._silent = silent
        self._clock = clock
        self._connections = connections
        self._seen: dict[int, _Seen] = {}
        self._suspected: dict[Address, asyncio.Task[None]] = {}
        self._next: asyncio.TimerHandle | None = None
        self._closed = False

    def wake(self) -> None:
        """Something may be awaited from now on."""
        self._look_in(LOOK_S)

    def _look_in(self, seconds: float) -> None:
        if self._next is None and not self._closed:
            self._next = asyncio.get_running_loop().call_later(seconds, self._look)

    async def close(self) -> None:
        """Look no more."""
        self._closed = True
        if self._next is not None:
            self._next.cancel()
        asking = list(self._suspected.values())
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def _look(self) -> None:
        self._next = None
        awaited = [(at, one) for at, one in self._connections() if one.owes_answer]
        now = self._clock.monotonic()
        self._seen = {id(one): self._seen_of(one, now) for _, one in awaited}
        for address, one in awaited:
            if now - self._seen[id(one)].since >= QUIET_S and address not in self._suspected:
                self._suspected[address] = asyncio.ensure_future(self._ask(address))
        if awaited:
            self._look_in(LOOK_S)
        elif self._has_threads():
            self._look_in(IDLE_LOOK_S)

    def _seen_of(self, connection: WatchedConnection, now: float) -> _Seen:
        seen = self._seen.get(id(connection))
        if seen is None or seen.bytes != connection.bytes_received:
            return _Seen(connection.bytes_received, now)
        return seen

    async def _ask(self, address: Address) -> None:
        try:
            if await self._silent.is_gone(address):
                for at, one in list(self._connections()):
                    if at == address:
                        one.abandon(given_up(address))
        finally:
            del self._suspected[address]
