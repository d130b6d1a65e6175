"""The little HTTP server answers its own hosts and nobody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from strom.errors import PortInUse
from strom.rpc import http_server as http
from strom.rpc.http_server import HttpAnswer, HttpServer, HttpThread, host_name, parse_head
from strom.runtime.sockets import TcpNetwork
from waiting import until


async def _respond(path: str) -> HttpAnswer:
    if path == "/boom":
        raise ValueError("secret detail")
    return HttpAnswer(f"you asked for {path}")


def run(talk: Callable[[int], Awaitable[None]]) -> None:
    async def main() -> None:
        server = HttpServer(_respond, hosts=["localhost", "127.0.0.1", "[::1]"])
        port = await server.start(TcpNetwork(), "127.0.0.1", 0)
        try:
            await asyncio.wait_for(talk(port), 10)
        finally:
            await server.close()

    asyncio.run(main())


async def ask(port: int, request: bytes) -> tuple[int, str, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    raw = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = raw.decode().partition("\r\n\r\n")
    return int(head.split(" ")[1]), head, body


def test_a_get_is_answered_and_the_connection_closes() -> None:
    async def talk(port: int) -> None:
        status, head, body = await ask(port, b"GET /health?x=1 HTTP/1.1\r\nHost: localhost:9249\r\n\r\n")
        assert (status, body) == (200, "you asked for /health?x=1")
        assert "Content-Security-Policy: default-src 'none'" in head
        assert "nosniff" in head

    run(talk)


def test_a_head_request_gets_the_head_only() -> None:
    async def talk(port: int) -> None:
        status, head, body = await ask(port, b"HEAD / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (status, body) == (200, "")
        assert "Content-Length: 15" in head

    run(talk)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
        (b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", HTTPStatus.MISDIRECTED_REQUEST),
        (b"GET / HTTP/1.1\r\n\r\n", HTTPStatus.MISDIRECTED_REQUEST),
        (b"nonsense\r\n\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 9000 + b"\r\n\r\n", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
        (b"GET /boom HTTP/1.1\r\nHost: localhost\r\n\r\n", HTTPStatus.INTERNAL_SERVER_ERROR),
    ],
)
def test_what_it_does_not_serve_is_refused(request_bytes: bytes, status: HTTPStatus) -> None:
    async def talk(port: int) -> None:
        found, _, body = await ask(port, request_bytes)
        assert found == status
        assert "secret" not in body

    run(talk)


def test_a_request_that_never_ends_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_TIMEOUT_S", 0.05)

    async def talk(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n")
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass  # some systems show a reset instead of an end
        writer.close()

    run(talk)


def test_too_many_connections_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 1)

    async def talk(port: int) -> None:
        _, first = await asyncio.open_connection("127.0.0.1", port)
        reader, second = await asyncio.open_connection("127.0.0.1", port)
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass  # dropped is dropped
        first.close()
        second.close()

    run(talk)


@pytest.mark.parametrize("request_bytes", [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET / HT"])
def test_a_connection_that_has_ended_makes_room_for_another(
    monkeypatch: pytest.MonkeyPatch, request_bytes: bytes
) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 1)

    async def talk(port: int) -> None:
        async def answered() -> bool:
            try:
                status, _, _ = await ask(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            except (ConnectionError, IndexError):
                return False
            return status == 200

        rounds = 0
        for _ in range(3):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_bytes)
            writer.close()
            await writer.wait_closed()
            await until(answered)  # once the server has seen the end of it
            rounds += 1
        assert rounds == 3

    run(talk)


def test_heads_are_taken_apart() -> None:
    assert parse_head(b"GET /a?b=c HTTP/1.1\r\nhost:  x:1 ") == ("GET", "/a?b=c", "x:1")
    assert parse_head(b"GET /a") == ("", "", "")
    assert host_name("[::1]:9249") == "[::1]"
    assert host_name("LocalHost:80") == "localhost"


def test_a_server_that_anyone_may_reach_takes_any_host() -> None:
    async def main() -> None:
        server = HttpServer(_respond, hosts=None)
        port = await server.start(TcpNetwork(), "127.0.0.1", 0)
        try:
            status, _, _ = await ask(port, b"GET / HTTP/1.1\r\nHost: db.example\r\n\r\n")
            assert status == 200
        finally:
            await server.close()

    asyncio.run(main())


def test_a_program_without_a_loop_serves_pages_from_a_thread() -> None:
    served = HttpThread(_respond, "127.0.0.1", 0)
    try:
        with urlopen(f"http://127.0.0.1:{served.port}/metrics", timeout=10) as answer:
            assert answer.read() == b"you asked for /metrics"
        with pytest.raises(PortInUse):
            HttpThread(_respond, "127.0.0.1", served.port)
    finally:
        served.close()
    with pytest.raises(URLError):
        urlopen(f"http://127.0.0.1:{served.port}/metrics", timeout=10)
    assert not [thread for thread in threading.enumerate() if thread.name == "strom-http"]
