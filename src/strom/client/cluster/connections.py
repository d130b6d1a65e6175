"""Open connections: one per server and lane, opened when first needed and reopened after a failure.

A lane keeps one kind of work from waiting behind another on the same socket: a tail's small answers never queue
behind a scan's large ones.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Literal

from strom.client.cluster.address import Address
from strom.client.cluster.connection_watch import ConnectionWatch, WatchedConnection
from strom.client.cluster.direct_caller import DirectCaller
from strom.client.cluster.direct_calls import DirectCalls
from strom.client.cluster.options import ClientOptions
from strom.client.cluster.shared_tasks import SharedTasks
from strom.client.cluster.silent_servers import AskOthers, SilentServers
from strom.errors import ConnectionClosed
from strom.rpc.caller import Caller
from strom.runtime.world import World

Lane = Literal["main", "write", "scan", "tail"]


@dataclass(frozen=True)
class ClientTraffic:
    """Bytes and requests over this client's connections so far."""

    bytes_sent: int = 0
    bytes_received: int = 0
    requests: int = 0

    def __add__(self, other: ClientTraffic) -> ClientTraffic:
        return ClientTraffic(
            self.bytes_sent + other.bytes_sent,
            self.bytes_received + other.bytes_received,
            self.requests + other.requests,
        )


class Connections:
    """The connections of one client. The password stays here and is never shown."""

    def __init__(
        self,
        world: World,
        options: ClientOptions,
        *,
        user: str | None,
        password: str | None,
        ask_others: AskOthers,
    ) -> None:
        """``ask_others``: asks another server than one that is silent."""
        self._world = world
        self._loop = asyncio.get_running_loop()
        self._silent = SilentServers(world.clock, self._probe, ask_others)
        self._watch = ConnectionWatch(self._silent, world.clock, self._watched, lambda: bool(self._dialled))
        self._options = options
        self.user = user
        self._password = password
        self._open: dict[tuple[Address, Lane], Caller] = {}
        self._making: SharedTasks[tuple[Address, Lane], Caller] = SharedTasks()
        self._ended = ClientTraffic()
        self._closed = False
        self.direct = None if world.dial is None else DirectCalls(self.dial)
        """Calls from threads that block; None in a world without them."""
        self._dialled: list[DirectCaller] = []
        self._dialling = threading.Lock()

    def __repr__(self) -> str:
        return f"Connections({len(self._open)} open, user={self.user!r})"

    async def get(self, address: Address, lane: Lane = "main") -> Caller:
        """The connection to a server; concurrent callers wait for the same one."""
        key = (address, lane)
        self._watch.wake()
        caller = self._open.get(key)
        if caller is not None:
            if not caller.closed:
                return caller
            self._forget(key, caller)
        self._silent.check(address)
        if self._closed:
            raise ConnectionClosed("this connection was closed; connect again")
        return await self._making.run(key, lambda: self._make(key))

    def ready(self, address: Address, lane: Lane) -> Caller | None:
        """The connection if it is open, else None."""
        self._watch.wake()
        caller = self._open.get((address, lane))
        return None if caller is None or caller.closed else caller

    async def _make(self, key: tuple[Address, Lane]) -> Caller:
        address, _ = key
        caller = await Caller.connect(
            self._world,
            address.host,
            address.port,
            user=self.user,
            password=self._password,
            timeout_s=self._options.connect_timeout_ms / 1000,
        )
        if self._closed:
            caller.close()
            raise ConnectionClosed("this connection was closed while it was being made")
        self._open[key] = caller
        return caller

    def dial(self, address: Address) -> DirectCaller:
        """A connection for a blocking thread. Any thread may call this; the caller owns it until the client closes."""
        timeout_s = self._options.connect_timeout_ms / 1000
        self._silent.check(address)
        caller = DirectCaller.connect(
            self._world, address, user=self.user, password=self._password, timeout_s=timeout_s
        )
        with self._dialling:
            if not self._closed:
                ended = [one for one in self._dialled if one.broken is not None]
                self._ended = sum(map(_traffic_of, ended), self._ended)
                self._dialled = [*(one for one in self._dialled if one.broken is None), caller]
                self._loop.call_soon_threadsafe(self._watch.wake)
                return caller
        caller.close()
        raise ConnectionClosed("this connection was closed while it was being made")

    async def _probe(self, address: Address, timeout_s: float) -> None:
        """Ask a server on a new connection whether it is there."""
        async with asyncio.timeout(timeout_s):
            caller = await Caller.connect(
                self._world,
                address.host,
                address.port,
                user=self.user,
                password=self._password,
                timeout_s=timeout_s,
            )
        caller.close()

    def _watched(self) -> list[tuple[Address, WatchedConnection]]:
        with self._dialling:
            direct = [(one.address, one) for one in self._dialled if one.broken is None]
        return [*((key[0], one) for key, one in self._open.items() if not one.closed), *direct]

    def _forget(self, key: tuple[Address, Lane], caller: Caller) -> None:
        del self._open[key]
        with self._dialling:  # dialling threads add to it too
            self._ended += _traffic(caller)

    def traffic(self) -> ClientTraffic:
        """The sum over all connections, broken ones included. Any thread may call this."""
        callers = list(self._open.values())
        with self._dialling:
            direct = sum(map(_traffic_of, self._dialled), self._ended)
        return sum(map(_traffic, callers), direct)

    async def close(self) -> None:
        """Close all connections; waiting calls raise ConnectionClosed."""
        with self._dialling:
            self._closed = True
        if self.direct is not None:
            self.direct.close()
        for direct in self._dialled:
            direct.close()
        await self._watch.close()
        await self._silent.close()
        callers = list(self._open.items())
        for key, caller in callers:
            caller.close()
            self._forget(key, caller)
        await self._making.close()
        for _, caller in callers:
            await caller.wait_closed()


def _traffic(caller: Caller) -> ClientTraffic:
    counted = caller.statistics()
    return ClientTraffic(counted.bytes_sent, counted.bytes_received, counted.requests)


def _traffic_of(caller: DirectCaller) -> ClientTraffic:
    return ClientTraffic(caller.bytes_sent, caller.bytes_received, caller.requests)
