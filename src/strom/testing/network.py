"""A network in memory: listen and connect inside one event loop, with delays and faults on demand.

It is a :class:`strom.runtime.sockets.Network` and works on a :class:`~strom.testing.loop.VirtualLoop`, where delays
cost nothing. With a seed, delays vary and bytes arrive in pieces of any size, as TCP is allowed to give them.

Hosts are names. ``at("a")`` is the same network seen from host ``a``, so that faults can be between two hosts::

    network.cut("a", "b")       their connections break now, both sides notice
    network.stall("a", "b")     nothing arrives and nobody notices, until ``heal``
    network.refuse("b")         new connections to b are refused, until ``heal``
    network.block("a", "b")     nothing arrives from a at b; the other way everything does, until ``heal``
    network.freeze("a")         the processes of a stand still, until ``wake``
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeVar

from strom.errors import Disconnected, PortInUse
from strom.runtime.random import Randomness
from strom.testing.memory_transport import NOBODY, MemoryTransport

Spoken = TypeVar("Spoken", bound=asyncio.BaseProtocol)
Fault = TypeVar("Fault")

PIECE_BYTES_MAX = 64 * 1024
TORN = (1, 16, PIECE_BYTES_MAX, PIECE_BYTES_MAX)
"""Limits of pieces, drawn from: often tiny, so that both the fast path and the one with many pieces run."""
SELDOM_TORN = (1, 16, *(PIECE_BYTES_MAX,) * 14)
"""Where what is said matters more than how it arrives: each piece more is a turn of the loop more."""
FIRST_FREE_PORT = 20_000
FIRST_CLIENT_PORT = 50_000
EVERY_HOST = ("0.0.0.0", "::", "")


class MemoryListening:
    """An open port of a :class:`MemoryNetwork`."""

    def __init__(
        self, network: MemoryNetwork, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._network = network
        self._host = host
        self._port = port
        self.factory = factory

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        self._network._forget(self._host, self._port, self)

    async def wait_closed(self) -> None:
        await asyncio.sleep(0)


class MemoryNetwork:
    """A network in memory; see the module's opening."""

    def __init__(
        self,
        *,
        delay_s: float = 0.0,
        jitter_s: float = 0.0,
        randomness: Randomness | None = None,
        pieces: Sequence[int] = TORN,
    ) -> None:
        self._pieces = pieces
        self._delay_s = delay_s
        self._jitter_s = jitter_s
        self._randomness = randomness
        self._listening: dict[tuple[str, int], MemoryListening] = {}
        self._free_ports = count(FIRST_FREE_PORT)
        self._client_ports = count(FIRST_CLIENT_PORT)
        # In order of creation, so that faults strike in the same order in every run.
        self._connections: dict[int, tuple[MemoryTransport, MemoryTransport]] = {}
        self._connection_numbers = count()
        self._stalls: list[frozenset[str]] = []
        self._blocks: list[tuple[str, str]] = []
        self._frozen: dict[str, list[Callable[[], None]]] = {}
        """What to do when they are awake again, by host."""
        self._refusing: set[str] = set()
        self._healed: list[asyncio.Future[None]] = []

    # --- Network

    def at(self, host: str) -> MemoryNetworkAt:
        """This network as ``host`` sees it."""
        return MemoryNetworkAt(self, host)

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> MemoryListening:
        await asyncio.sleep(0)
        if port == 0:
            port = next(free for free in self._free_ports if self._find(host, free) is None)
        if self._find(host, port) is not None:
            raise PortInUse(
                f"another program listens on {host}:{port}; choose another port", host=host, port=port
            )
        listening = MemoryListening(self, host, port, factory)
        self._listening[host, port] = listening
        return listening

    async def connect(
        self, host: str, port: int, factory: Callable[[], Spoken], *, source: str = "client"
    ) -> tuple[asyncio.Transport, Spoken]:
        await asyncio.sleep(self.delay_s())
        while self.stalled(source, host) or self.stalled(host, source):
            await self._next_heal()
        listening = None if host in self._refusing else self._find(host, port)
        if listening is None:
            raise Disconnected(
                f"cannot connect to {host}:{port}: Connection refused", host=host, port=port, refused=True
            )
        return self._join(listening, source, (host, port), factory)

    def _join(
        self, listening: MemoryListening, source: str, target: tuple[str, int], factory: Callable[[], Spoken]
    ) -> tuple[MemoryTransport, Spoken]:
        number = next(self._connection_numbers)
        ours = (source, next(self._client_ports))
        client, server = MemoryTransport.pair(ours, target, self, lambda: self._one_end_gone(number))
        self._connections[number] = (client, server)
        loop = asyncio.get_running_loop()
        loop.call_soon(self._accept, listening, server, context=NOBODY)
        protocol = factory()
        client.begin(protocol)
        return client, protocol

    def _accept(self, listening: MemoryListening, server: MemoryTransport) -> None:
        if self.frozen(server.host):
            self.when_awake(server.host, lambda: self._accept(listening, server))
            return
        try:
            server.begin(listening.factory())
        except BaseException:
            server.abort()
            raise

    def _one_end_gone(self, number: int) -> None:
        ends = self._connections.get(number)
        if ends is not None and all(end.is_gone() for end in ends):
            del self._connections[number]

    def _find(self, host: str, port: int) -> MemoryListening | None:
        found = (self._listening.get((name, port)) for name in (host, *EVERY_HOST))
        return next((one for one in found if one is not None), None)

    def _forget(self, host: str, port: int, listening: MemoryListening) -> None:
        if self._listening.get((host, port)) is listening:
            del self._listening[host, port]

    # --- Weather

    def delay_s(self) -> float:
        if self._randomness is None or not self._jitter_s:
            return self._delay_s
        return self._delay_s + self._jitter_s * self._randomness.below(1 << 20) / (1 << 20)

    def piece_bytes(self) -> int:
        if self._randomness is None:
            return PIECE_BYTES_MAX
        limit = self._pieces[self._randomness.below(len(self._pieces))]
        return 1 + self._randomness.below(limit)

    def stalled(self, source: str, target: str) -> bool:
        return (source, target) in self._blocks or any(hosts <= {source, target} for hosts in self._stalls)

    def frozen(self, host: str) -> bool:
        return host in self._frozen

    def when_awake(self, host: str, callback: Callable[[], None]) -> None:
        self._frozen[host].append(callback)

    # --- Faults

    @property
    def connection_count(self) -> int:
        """Connections that are open on at least one side."""
        return len(self._connections)

    def set_delay(self, delay_s: float, jitter_s: float = 0.0) -> None:
        """From now on pieces are in flight for this long, and up to ``jitter_s`` longer."""
        self._delay_s, self._jitter_s = delay_s, jitter_s

    def cut(self, *hosts: str) -> int:
        """Break the connections of one host, between two hosts, or (without any) all; how many."""
        struck = [ends for ends in self._connections.values() if set(hosts) <= {end.host for end in ends}]
        for ends in struck:
            for end in ends:
                end.break_now()
        return len(struck)

    def stall(self, *hosts: str) -> Callable[[], None]:
        """Stop everything to and from one host, between two, or (without any) everywhere; returns what ends it."""
        stall = frozenset(hosts)
        self._stalls.append(stall)
        return lambda: self._end(self._stalls, stall)

    def block(self, source: str, target: str) -> Callable[[], None]:
        """Stop everything from one host to another; returns what ends it."""
        self._blocks.append((source, target))
        return lambda: self._end(self._blocks, (source, target))

    def _end(self, faults: list[Fault], fault: Fault) -> None:
        if fault in faults:
            faults.remove(fault)
            self._move_again()

    def freeze(self, host: str) -> None:
        """Let nobody on a host read, accept or notice anything, until ``wake``. The system under them goes on."""
        self._frozen.setdefault(host, [])

    def wake(self, host: str) -> None:
        """Let a frozen host go on; what arrived in the meantime is there."""
        for callback in self._frozen.pop(host, []):
            callback()
        for ends in list(self._connections.values()):
            for end in ends:
                if end.host == host:
                    end.wake()

    def refuse(self, host: str) -> None:
        """Refuse new connections to a host."""
        self._refusing.add(host)

    def heal(self) -> None:
        """End stalls, blocks and refusals; delayed data arrives."""
        self._stalls.clear()
        self._blocks.clear()
        self._refusing.clear()
        self._move_again()

    def _move_again(self) -> None:
        for waiting in self._healed:
            if not waiting.done():
                waiting.set_result(None)
        self._healed.clear()
        for ends in list(self._connections.values()):
            for end in ends:
                end.wake()

    async def _next_heal(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._healed.append(waiting)
        await waiting


class MemoryNetworkAt:
    """A :class:`MemoryNetwork` as one host sees it: it listens there and connects from there."""

    def __init__(self, network: MemoryNetwork, host: str) -> None:
        self._network = network
        self._host = host

    async def listen(
        self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> MemoryListening:
        """Listen on this host, whichever of its names is given."""
        return await self._network.listen(self._host, port, factory)

    async def connect(
        self, host: str, port: int, factory: Callable[[], Spoken]
    ) -> tuple[asyncio.Transport, Spoken]:
        return await self._network.connect(host, port, factory, source=self._host)
