"""A server's open port: accepts connections, bounds them, and ends them.

Closing has steps: accept no more connections and read no more requests, let running calls end, cancel those that take
too long, send the remaining answers, close.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from strom.protocol.api_keys import LOG_APIS, Api
from strom.rpc.budget import Budget
from strom.rpc.call import Handler
from strom.rpc.connection import ServerConnection
from strom.rpc.limits import ListenerLimits
from strom.rpc.sasl import Authentication
from strom.rpc.service import Service
from strom.rpc.traffic import InFlight, ListenerTraffic
from strom.runtime.metrics import Metrics
from strom.runtime.sockets import Listening
from strom.runtime.world import World

LAST_WORDS_S = 1.0
"""Time to send the last answers after all calls have ended."""


class Listener:
    """One address where calls are answered."""

    def __init__(
        self,
        world: World,
        name: str,
        host: str,
        port: int,
        handler: Handler,
        *,
        authentication: Authentication | None = None,
        limits: ListenerLimits | None = None,
        budget: Budget | None = None,
        metrics: Metrics | None = None,
        apis: Iterable[Api[Any, Any]] = LOG_APIS,
        server_type: int | None = None,
    ) -> None:
        self.name = name
        self.host = host
        self._port = port
        self._network = world.network
        self._limits = limits or ListenerLimits()
        budget = budget or Budget(self._limits.inflight_bytes_max)
        self._service = Service(
            name,
            handler,
            authentication=authentication,
            limits=self._limits,
            budget=budget,
            traffic=ListenerTraffic(
                name, metrics or Metrics(), world.clock, budget, self._limits.slow_call_s
            ),
            apis=apis,
            server_type=server_type,
        )
        self._connections: dict[ServerConnection, None] = {}
        self._strangers: dict[str, dict[ServerConnection, None]] = {}
        """Connections that have not logged in, by address, the oldest first."""
        self._connection_ids = 0
        self._listening: Listening | None = None
        self._look: asyncio.TimerHandle | None = None
        self._stopping = False
        self._empty = asyncio.Event()
        self._empty.set()
        self._service.traffic.follow(self.statistics)

    @property
    def port(self) -> int:
        """Where it listens; known after ``start``, also for any free port."""
        return self._listening.port if self._listening is not None else self._port

    async def start(self) -> Listener:
        """Open the port."""
        assert self._listening is None
        self._listening = await self._network.listen(self.host, self._port, self._accept)
        self._look_again()
        return self

    async def close(self, timeout_s: float = 10.0) -> None:
        """Close the port, then the connections. Calls may go on for ``timeout_s``."""
        if self._listening is None:
            return
        self._stopping = True
        self._listening.close()
        for connection in list(self._connections):
            connection.stop()
        if not await self._emptied(timeout_s):
            for connection in list(self._connections):
                connection.cancel()
            if not await self._emptied(LAST_WORDS_S):
                for connection in list(self._connections):
                    connection.abort()
                await self._empty.wait()
        if self._look is not None:
            self._look.cancel()
        self._service.traffic.flush()
        await self._listening.wait_closed()

    def statistics(self) -> InFlight:
        """Counters over all connections."""
        flows = [connection.flow for connection in self._connections]
        return InFlight(
            connections=len(flows),
            calls=sum(flow.calls for flow in flows),
            request_bytes=sum(flow.bytes for flow in flows),
            unsent_bytes=sum(flow.unsent for flow in flows),
        )

    # --- connections ----------------------------------------------------------------------------------------

    def _accept(self) -> ServerConnection:
        self._connection_ids += 1
        return ServerConnection(
            self._service,
            self._connection_ids,
            made=self._made,
            lost=self._lost,
            welcomed=self._welcomed,
        )

    def _made(self, connection: ServerConnection) -> bool:
        """Register a connection; False if there are too many."""
        welcome = len(self._connections) < self._limits.connections_max and not self._stopping
        if not welcome:
            self._service.traffic.dropped("too many connections")
        self._connections[connection] = None
        self._empty.clear()
        if welcome and not connection.welcome:
            self._receive(connection)
        return welcome

    def _receive(self, stranger: ServerConnection) -> None:
        """Register a connection that has to log in. If an address has too many, drop the oldest: a login is quick."""
        others = self._strangers.setdefault(stranger.address, {})
        others[stranger] = None
        if len(others) > self._limits.connections_before_login_max:
            oldest = next(iter(others))
            del others[oldest]
            self._service.traffic.dropped("too many before login")
            oldest.abort()

    def _welcomed(self, connection: ServerConnection) -> None:
        others = self._strangers.get(connection.address)
        if others is not None and others.pop(connection, True) is None and not others:
            del self._strangers[connection.address]

    def _lost(self, connection: ServerConnection) -> None:
        self._welcomed(connection)
        del self._connections[connection]
        if not self._connections:
            self._empty.set()

    def _look_again(self) -> None:
        """Periodically drop overdue connections."""
        loop = asyncio.get_running_loop()
        for connection in list(self._connections):
            reason = connection.overdue(loop.time())
            if reason is not None:
                self._service.traffic.dropped(reason)
                connection.abort()
        self._make_room(loop.time())
        self._service.traffic.flush()
        self._look = loop.call_later(self._limits.look_every_s, self._look_again)

    def _make_room(self, now: float) -> None:
        """If a request waits for memory and none becomes free, drop connections that hold some and hardly progress."""
        limits, budget = self._limits, self._service.budget
        paces = [(connection.look(now), connection) for connection in self._connections]
        slow = sorted(
            [one for one in paces if one[0] > limits.memory_hold_s_max], key=lambda one: one[0], reverse=True
        )
        for pool in (budget.small, budget.large):
            lacking = pool.stuck(now, limits.memory_patience_s)
            if not lacking:
                continue
            budget.press()
            for _, connection in slow:
                if lacking <= 0:
                    break
                if held := connection.flow.held(pool):
                    lacking -= held
                    self._service.traffic.dropped("slow while memory is short")
                    connection.abort()

    async def _emptied(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True
