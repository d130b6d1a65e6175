"""Calls between the servers of a cluster: the listener that takes them, and the link that makes them.

Every server has an *inner listener* beside its public ones. Both sides of a link prove that they know the cluster's
secret, and neither sends it (``rpc/shared_secret.py``). Under ``strom up`` the listener is on loopback; the coordinator
draws the secret at its start and hands it to each tablet server on standard input, so no file, environment or command
line shows it. In a cluster of machines all servers read the same secret from a private file. A caller that has not
proved to know it gets no inner call answered; a public listener does not know these calls at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from strom.coordinator.catalog import ListenerAddress
from strom.errors import ConnectionClosed, Disconnected, RequestTimeout
from strom.protocol.api_keys import Api, Request, Response
from strom.rpc.caller import Caller
from strom.rpc.limits import MIB, ListenerLimits
from strom.rpc.listener import Listener
from strom.rpc.shared_secret import SharedSecret, prove_secret
from strom.runtime.random import Randomness
from strom.runtime.world import World
from strom.server.calls.dispatch import CallGroup, Dispatch

INNER_LISTENER = "INNER"
LOOPBACK = "127.0.0.1"
SECRET_BYTES = 32

LIMITS = ListenerLimits(
    frame_bytes_max=64 * MIB,
    fields_max=64 * MIB,  # a decision of many tasks names each of them for every bucket
    idle_timeout_s=float("inf"),  # a link stays open for as long as both servers run
)


def new_secret(randomness: Randomness) -> str:
    """The secret of a cluster, for as long as its coordinator runs."""
    return randomness.token(SECRET_BYTES).hex()


async def open_inner_listener(
    world: World, secret: str, groups: Iterable[CallGroup], *, host: str = LOOPBACK, port: int = 0
) -> Listener:
    """Take inner calls; port 0: any free one. Memory for them is counted apart, so clients cannot hold them up."""
    dispatch = Dispatch(groups)
    listener = Listener(
        world,
        INNER_LISTENER,
        host,
        port,
        dispatch,
        authentication=SharedSecret(secret, world.randomness),
        limits=LIMITS,
        apis=dispatch.apis,
    )
    return await listener.start()


class InnerLink:
    """Calls to the inner listener of one server.

    Connects at the first call, and again when the connection broke. While the server's address is not known, calls fail
    with Disconnected.
    """

    def __init__(self, world: World, secret: str, name: str, address: ListenerAddress | None = None) -> None:
        """``name``: of the server, for messages."""
        self._world = world
        self._secret = secret
        self._name = name
        self._address = address
        self._caller: Caller | None = None
        self._connecting = asyncio.Lock()

    @property
    def address(self) -> ListenerAddress | None:
        """Where the server listens; None: it does not run, as far as is known."""
        return self._address

    def point_to(self, address: ListenerAddress | None) -> None:
        """The server listens here from now on; None: it does not run."""
        self._address = address
        self.close()

    def close(self) -> None:
        """Close the connection; waiting calls end with Disconnected."""
        if self._caller is not None:
            self._caller.close()
            self._caller = None

    async def connect(self, timeout_s: float) -> None:
        """Be connected. Disconnected: nothing was sent; its fact ``refused`` says that nobody listens there."""
        try:
            async with asyncio.timeout(timeout_s), self._connecting:
                await self._connected(timeout_s)
        except TimeoutError:
            raise Disconnected(f"{self._name} did not answer within {timeout_s:g} s") from None
        except ConnectionClosed:
            raise Disconnected(f"{self._name} ended while it was connected to") from None

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection right now."""
        return self._caller is not None and not self._caller.closed

    async def broken(self) -> None:
        """Return when there is no connection any more; at once if there is none."""
        if self._caller is not None and not self._caller.closed:
            await self._caller.wait_closed()

    async def call(
        self, api: Api[Request, Response], request: Request, *, timeout_s: float = 30.0
    ) -> Response:
        """The server's answer. Raises its error, RequestTimeout, or Disconnected."""
        try:
            # All of it: another call's connecting, a login that is delayed, a server that reads nothing.
            async with asyncio.timeout(timeout_s):
                caller = self._caller
                if caller is None or caller.closed:
                    async with self._connecting:
                        caller = await self._connected(timeout_s)
                return await caller.call(api, request, timeout_s=timeout_s)
        except TimeoutError:
            raise RequestTimeout(f"{self._name} did not answer {api.name} in time", api=api.name) from None
        except ConnectionClosed:
            raise Disconnected(f"{self._name} ended before it answered {api.name}") from None

    async def _connected(self, timeout_s: float) -> Caller:
        if self._caller is not None and not self._caller.closed:
            return self._caller
        address = self._address
        if address is None:
            raise Disconnected(f"{self._name} is not running")
        caller = await Caller.connect(
            self._world, address.host, address.port, login=self._prove, timeout_s=timeout_s
        )
        if address != self._address:  # the server ended meanwhile
            caller.close()
            raise Disconnected(f"{self._name} is not running")
        self._caller = caller
        return caller

    async def _prove(self, caller: Caller, timeout_s: float) -> None:
        await prove_secret(caller, self._secret, self._world.randomness, timeout_s)
