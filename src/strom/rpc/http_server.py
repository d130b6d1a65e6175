"""A tiny HTTP server: GET and HEAD, one request per connection.

Everything from outside is bounded: the head's size, the time until it is complete, the number of connections. A
request whose Host header names another host is refused: a browser was tricked into asking (DNS rebinding). Every answer
forbids scripts.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

from strom.runtime.sockets import Listening, Network, TcpNetwork
from strom.runtime.tasks import Tasks

HEAD_BYTES_MAX = 8 * 1024
CONNECTIONS_MAX = 64
REQUEST_TIMEOUT_S = 10.0
SECURITY_HEADERS = (
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options: nosniff",
    "Referrer-Policy: no-referrer",
    "Cache-Control: no-store",
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HttpAnswer:
    """What goes back to the asker."""

    body: str
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


Respond = Callable[[str], Awaitable[HttpAnswer]]
"""From a path to its answer."""


class HttpServer:
    """Answers GET requests of a few, known hosts."""

    def __init__(self, respond: Respond, *, hosts: Collection[str] | None) -> None:
        """``hosts``: what may stand in a Host header; None where anyone may ask anyway."""
        self._respond = respond
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._tasks = Tasks()
        self._open: set[HttpConnection] = set()
        self._listening: Listening | None = None

    async def start(self, network: Network, host: str, port: int) -> int:
        """Listen; returns the port."""
        self._listening = await network.listen(host, port, lambda: HttpConnection(self))
        return self._listening.port

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        if self._listening is not None:
            self._listening.close()
        await self._tasks.close()
        for connection in list(self._open):
            connection.abort()

    # --- for connections -------------------------------------------------------------------------------

    def admit(self, connection: HttpConnection) -> bool:
        """Whether there is room for one more connection."""
        if len(self._open) >= CONNECTIONS_MAX:
            return False
        self._open.add(connection)
        return True

    def forget(self, connection: HttpConnection) -> None:
        """A connection is gone."""
        self._open.discard(connection)

    def begin(self, connection: HttpConnection, head: bytes) -> None:
        """Answer a complete request head in the background."""
        self._tasks.spawn(self._answer(connection, head), "http request")

    async def _answer(self, connection: HttpConnection, head: bytes) -> None:
        method, path, host = parse_head(head)
        if method not in ("GET", "HEAD"):
            answer = _plain(HTTPStatus.METHOD_NOT_ALLOWED)
        elif self._hosts is not None and host_name(host) not in self._hosts:
            answer = _plain(HTTPStatus.MISDIRECTED_REQUEST)
        else:
            try:
                answer = await self._respond(path)
            except Exception:
                logger.exception("answering %s failed", path)
                answer = _plain(HTTPStatus.INTERNAL_SERVER_ERROR)
        connection.send(encode_answer(answer, with_body=method != "HEAD"))


class HttpThread:
    """An HttpServer on a thread of its own, for a program that has no event loop."""

    def __init__(self, respond: Respond, host: str, port: int) -> None:
        """Listen at once; raises PortInUse."""
        self._loop = asyncio.new_event_loop()
        self._server = HttpServer(respond, hosts=None)
        try:
            self.port = self._loop.run_until_complete(self._server.start(TcpNetwork(), host, port))
        except BaseException:
            self._loop.close()
            raise
        self._thread = threading.Thread(target=self._loop.run_forever, name="strom-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and drop every connection."""
        asyncio.run_coroutine_threadsafe(self._server.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class HttpConnection(asyncio.Protocol):
    """One connection: collects a head, sends an answer, closes."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._head = bytearray()
        self._complete = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._server.admit(self):
            self._transport.abort()
            return
        self._deadline = asyncio.get_running_loop().call_later(REQUEST_TIMEOUT_S, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._complete:
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end >= 0 and end <= HEAD_BYTES_MAX:
            self._complete = True
            self._server.begin(self, bytes(self._head[:end]))
        elif len(self._head) > HEAD_BYTES_MAX:
            self._complete = True
            self.send(encode_answer(_plain(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), with_body=True))

    def connection_lost(self, error: Exception | None) -> None:
        self._server.forget(self)
        self._transport = None
        if self._deadline is not None:
            self._deadline.cancel()

    def send(self, content: bytes) -> None:
        """The answer, the whole answer, and then close."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(content)
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()


def parse_head(head: bytes) -> tuple[str, str, str]:
    """Method, path with its query, and Host of a request head; empty strings for what is missing."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return "", "", ""
    host = ""
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if name.lower() == "host":
            host = value.strip()
    return words[0], words[1], host


def host_name(host: str) -> str:
    """A Host header without its port, in lower case."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()


def encode_answer(answer: HttpAnswer, *, with_body: bool) -> bytes:
    """The answer as bytes."""
    body = answer.body.encode()
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *SECURITY_HEADERS,
    ]
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head + body if with_body else head


def _plain(status: HTTPStatus) -> HttpAnswer:
    return HttpAnswer(f"{status.phrase}\n", status=status)
