"""The open ports of one process: one listener per endpoint, all with the same calls and one memory budget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from strom.rpc.budget import Budget
from strom.rpc.limits import ListenerLimits
from strom.rpc.listener import Listener
from strom.rpc.sasl import Sasl
from strom.runtime.metrics import Metrics
from strom.runtime.settings import Settings
from strom.runtime.world import World
from strom.server.calls.dispatch import Dispatch
from strom.server.process.listeners import Endpoint

COORDINATOR_TYPE, TABLET_TYPE = 1, 2


class Ports:
    """All listeners of one process."""

    def __init__(
        self, world: World, settings: Settings, metrics: Metrics, *, server_type: int | None
    ) -> None:
        self._world = world
        self._metrics = metrics
        self._server_type = server_type
        self._sasl = Sasl(settings["security.sasl.plain.credentials"])
        self._limits = limits_of(settings)
        self.budget = Budget(self._limits.inflight_bytes_max)
        """Memory for requests and answers of all connections."""
        self._listeners: list[Listener] = []
        self.endpoints: tuple[Endpoint, ...] = ()

    async def open(self, endpoints: Sequence[Endpoint], dispatch: Dispatch) -> tuple[Endpoint, ...]:
        """Listen on every endpoint; returns the endpoints with the ports actually taken."""
        bound: list[Endpoint] = []
        try:
            for endpoint in endpoints:
                listener = Listener(
                    self._world,
                    endpoint.name,
                    endpoint.host,
                    endpoint.port,
                    dispatch,
                    authentication=self._sasl if endpoint.sasl else None,
                    limits=self._limits,
                    budget=self.budget,
                    metrics=self._metrics,
                    apis=dispatch.apis,
                    server_type=self._server_type,
                )
                await listener.start()
                self._listeners.append(listener)
                bound.append(endpoint.bound(listener.port))
        except BaseException:
            await self.close(timeout_s=0)
            raise
        self.endpoints = tuple(bound)
        return self.endpoints

    @property
    def is_open(self) -> bool:
        """Whether it listens."""
        return bool(self._listeners)

    @property
    def connections(self) -> int:
        """The number of connected clients."""
        return sum(listener.statistics().connections for listener in self._listeners)

    async def close(self, *, timeout_s: float) -> None:
        """Let running calls end, then close every port."""
        await asyncio.gather(*(listener.close(timeout_s) for listener in self._listeners))
        self._listeners.clear()


def limits_of(settings: Settings) -> ListenerLimits:
    """The bounds of every listener, from the settings."""
    return ListenerLimits(
        frame_bytes_max=settings["server.request.max-bytes"],
        frame_bytes_max_before_login=settings["server.request.max-bytes-before-login"],
        connections_max=settings["server.connection.max"],
        connections_before_login_max=settings["server.connection.max-before-login"],
        connection_inflight_bytes_max=settings["server.connection.inflight-bytes-max"],
        inflight_bytes_max=settings["server.inflight-bytes-max"],
        idle_timeout_s=settings["server.connection.idle-timeout"] / 1000,
        slow_call_s=settings["logging.slow-call"] / 1000,
    )
