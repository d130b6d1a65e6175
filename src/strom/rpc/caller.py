"""Calls a server: one connection, any number of calls at once.

The buffers of a request are sent without a copy: they must not change until ``call`` returns (or, if it is cancelled or
times out, until the caller is closed). The payloads of an answer are views of its own memory.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, Protocol

from strom._version import __version__
from strom.errors import ConnectionClosed, Disconnected, StromError, UnsupportedVersion
from strom.protocol.api_keys import API_VERSIONS, APIS, AUTHENTICATE, Api, Request, Response
from strom.protocol.messages.connection import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    AuthenticateRequest,
)
from strom.rpc.client_connection import ClientConnection
from strom.rpc.promise import Promise
from strom.rpc.sasl import PLAIN, plain_token
from strom.runtime.world import World

CLIENT_NAME = "strom"


class CallerStatistics(NamedTuple):
    """Counters of the connection."""

    bytes_sent: int
    bytes_received: int
    requests: int


class Login(Protocol):
    """Another login than a user and a password."""

    async def __call__(self, caller: Caller, timeout_s: float, /) -> None:
        """Log in on a new connection. Raises AuthenticationFailed."""


class Caller:
    """A connection to a server, with the negotiated versions of its calls. Created by ``connect``."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._versions: dict[int, int] = {API_VERSIONS.key: 0, AUTHENTICATE.key: 0}
        self.server_type: int | None = None

    @classmethod
    async def connect(
        cls,
        world: World,
        host: str,
        port: int,
        *,
        user: str | None = None,
        password: str | None = None,
        login: Login | None = None,
        timeout_s: float = 10.0,
    ) -> Caller:
        """Connect, agree on versions, log in if a user or another login is given.

        Raises Disconnected or AuthenticationFailed.
        """
        address = f"{host}:{port}"
        try:
            async with asyncio.timeout(timeout_s):
                _, connection = await world.network.connect(host, port, lambda: ClientConnection(address))
        except TimeoutError as error:
            raise Disconnected(f"{address} did not answer within {timeout_s:g} s", address=address) from error
        caller = cls(connection)
        try:
            await caller._agree(timeout_s)
            if user is not None:
                token = plain_token(user, password or "")
                plain = AuthenticateRequest(protocol=PLAIN, token=token)
                await caller.call(AUTHENTICATE, plain, timeout_s=timeout_s)
            elif login is not None:
                await login(caller, timeout_s)
        except BaseException:
            caller.close()
            raise
        return caller

    @property
    def closed(self) -> bool:
        """Whether no more calls are possible, because of ``close`` or a broken connection."""
        return self._connection.broken is not None

    @property
    def waiting(self) -> int:
        """Calls without an answer yet."""
        return self._connection.waiting

    async def call(
        self, api: Api[Request, Response], request: Request, *, timeout_s: float = 30.0
    ) -> Response:
        """Send a request and wait for the answer. Raises the server's error, RequestTimeout, or Disconnected."""
        connection = self._connection
        while connection.congested:
            await connection.writable()
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        connection.send(api, self._version(api), request, timeout_s, answer)
        return await answer

    def start(
        self, api: Api[Request, Response], request: Request, *, timeout_s: float = 30.0
    ) -> Promise[Response] | None:
        """Like ``call``, but sent before this returns; None if too much is unsent: then use ``call``."""
        if self._connection.congested:
            return None
        answer: Promise[Response] = Promise()
        self._connection.send(api, self._version(api), request, timeout_s, answer)
        return answer

    def _version(self, api: Api[Any, Any]) -> int:
        version = self._versions.get(api.key)
        if version is None:
            raise UnsupportedVersion(f"{self._connection.address} does not offer {api.name}", api=api.name)
        return version

    def statistics(self) -> CallerStatistics:
        """The counters of the connection so far."""
        connection = self._connection
        return CallerStatistics(connection.bytes_sent, connection.bytes_received, connection.requests)

    @property
    def owes_answer(self) -> bool:
        """Whether a call is not answered yet."""
        return self._connection.waiting > 0

    @property
    def bytes_received(self) -> int:
        """Bytes received in total."""
        return self._connection.bytes_received

    def abandon(self, reason: StromError) -> None:
        """Close the connection because of this error, with which calls that wait end."""
        self._connection.close(reason)

    def close(self) -> None:
        """Close the connection; calls that wait end with ConnectionClosed."""
        self._connection.close(ConnectionClosed(f"the connection to {self._connection.address} was closed"))

    async def wait_closed(self) -> None:
        """After ``close``: return when the connection is gone."""
        await self._connection.wait_closed()

    async def _agree(self, timeout_s: float) -> None:
        """Ask which calls the server offers, and choose the highest version that both sides know."""
        offer = await self.call(API_VERSIONS, hello(), timeout_s=timeout_s)
        self.server_type = offer.server_type
        self._versions |= agreed_versions(offer)


def hello() -> ApiVersionsRequest:
    """The first request of a client."""
    return ApiVersionsRequest(client_software_name=CLIENT_NAME, client_software_version=__version__)


def agreed_versions(offer: ApiVersionsResponse) -> dict[int, int]:
    """Call -> the highest version that both sides know."""
    return {
        row.api_key: min(row.max_version, ours.max_version)
        for row in offer.api_versions
        if (ours := APIS.get(row.api_key)) is not None
        and row.min_version <= ours.max_version
        and row.max_version >= ours.min_version
    }
