"""The network, passed in as an argument: listening and connecting, with asyncio's protocols.

The contract (``tests/contracts/network_contract.py``) runs on TCP and on the network in ``testing``:

    bytes arrive in order, each once, until the connection is lost
    a transport applies back pressure: it asks its protocol to pause writing, and waits while reading is paused
    ``connect`` raises Disconnected when nobody answers, with the fact ``refused`` if the machine does but nobody
    listens there; ``listen`` on a taken port raises PortInUse

Small messages leave at once (TCP_NODELAY, which asyncio and uvloop set on every TCP connection).
Closing a listener leaves its connections open: they belong to their protocols.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from strom.errors import Disconnected, InvalidSetting, PortInUse

Spoken = TypeVar("Spoken", bound=asyncio.BaseProtocol)

BACKLOG = 512
"""Connections that the system queues while the loop is busy; enough for a burst of clients."""


class Listening(Protocol):
    """An open port."""

    @property
    def port(self) -> int:
        """The port, also if 0 (any free one) was requested."""

    def close(self) -> None:
        """Accept no more connections; the open ones stay."""

    async def wait_closed(self) -> None:
        """After ``close``: return when the port is free again."""


class Network(Protocol):
    """Where servers listen and clients connect."""

    async def listen(self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]) -> Listening:
        """Open a port; ``factory`` makes a protocol for every connection."""

    async def connect(
        self, host: str, port: int, factory: Callable[[], Spoken]
    ) -> tuple[asyncio.Transport, Spoken]:
        """Connect to a port. How long to wait is the caller's decision (``asyncio.timeout``)."""


class TcpNetwork:
    """The machine's network."""

    async def listen(self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]) -> TcpListening:
        loop = asyncio.get_running_loop()
        try:
            sockets = await _bound_sockets(host, port)
        except OSError as error:
            raise _cannot_listen(host, port, error) from error
        try:
            return TcpListening(
                [await loop.create_server(factory, sock=one, backlog=BACKLOG) for one in sockets]
            )
        except BaseException:
            _close(sockets)
            raise

    async def connect(
        self, host: str, port: int, factory: Callable[[], Spoken]
    ) -> tuple[asyncio.Transport, Spoken]:
        loop = asyncio.get_running_loop()
        try:
            return await loop.create_connection(factory, host, port)
        except OSError as error:
            raise Disconnected(
                f"cannot connect to {host}:{port}: {_reason(error)}",
                host=host,
                port=port,
                refused=_is_refusal(error),
            ) from error


class TcpListening:
    """An open TCP port, on every address its host name has."""

    def __init__(self, servers: Sequence[asyncio.Server]) -> None:
        self._servers = servers
        self._port: int = servers[0].sockets[0].getsockname()[1]

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        for server in self._servers:
            server.close()

    async def wait_closed(self) -> None:
        # Not Server.wait_closed: from Python 3.12 on it waits for the open connections too. The loops close
        # the listening socket at the latest one round after ``close``.
        for _ in range(2):
            await asyncio.sleep(0)


async def _bound_sockets(host: str, port: int) -> list[socket.socket]:
    """One socket per address of ``host`` (localhost often has two), all on the same port, also for 0."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, kind, number, _, address in sorted(set(found), key=lambda one: one[0]):
            try:
                sockets.append(_bound(family, kind, number, (address[0], port, *address[2:])))
            except OSError as error:
                # A host name may have an IPv6 address on a machine that has IPv6 turned off.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
            else:
                port = sockets[0].getsockname()[1]
    except BaseException:
        _close(sockets)
        raise
    if not sockets:
        raise missing or OSError(errno.EADDRNOTAVAIL, "the host has no address")
    return sockets


def _close(sockets: Sequence[socket.socket]) -> None:
    for one in sockets:
        one.close()


def _bound(family: int, kind: int, number: int, address: tuple[object, ...]) -> socket.socket:
    one = socket.socket(family, kind, number)
    try:
        one.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # a restart must not wait for old connections
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.setblocking(False)
        one.bind(address)
        # Two sockets can bind one port until one of them listens: detect a taken port now.
        one.listen(BACKLOG)
    except BaseException:
        one.close()
        raise
    return one


def _cannot_listen(host: str, port: int, error: OSError) -> PortInUse | InvalidSetting:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return PortInUse(f"another program listens on {where}; choose another port", host=host, port=port)
    return InvalidSetting(f"cannot listen on {where}: {_reason(error)}", host=host, port=port)


def _is_refusal(error: OSError) -> bool:
    """Whether the machine answers and nobody listens there; of a name with several addresses, at none of them."""
    if error.errno is not None:
        return error.errno == errno.ECONNREFUSED
    problems = str(error).split(", [Errno")
    return all(f"{errno.ECONNREFUSED}]" in one for one in problems)


def _reason(error: OSError) -> str:
    """The system's error message, which asyncio replaces."""
    known = error.errno is not None and error.errno in errno.errorcode
    return os.strerror(error.errno) if known and error.errno else error.strerror or str(error)
