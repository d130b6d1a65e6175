"""The network that is held, slowed and cut."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from strom.testing.switchboard import CLIENT, HOST, Switchboard


class Echo:
    """Sends back what it gets, in capitals."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with one:
            while chunk := one.recv(100):
                one.sendall(chunk.upper())

    def close(self) -> None:
        if self._listener.fileno() >= 0:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    one = Echo()
    yield one
    one.close()


@pytest.fixture(scope="module")
def network() -> Iterator[Switchboard]:
    with Switchboard() as one:
        yield one


@pytest.fixture
def board(network: Switchboard) -> Switchboard:
    """All links pass, and nobody is known."""
    network.heal()
    network.know("us", 0)
    return network


def ask(one: socket.socket, word: bytes) -> bytes:
    one.sendall(word)
    return one.recv(100)


def is_silent(one: socket.socket) -> bool:
    """Nothing is there now; what passes other links in the meantime shows that it would have come."""
    one.setblocking(False)
    try:
        one.recv(100)
    except BlockingIOError:
        return True
    finally:
        one.setblocking(True)
    return False


@pytest.mark.parametrize("way", [("us", "it"), ("it", "us")])
def test_what_is_held_one_way_arrives_late(board: Switchboard, echo: Echo, way: tuple[str, str]) -> None:
    board.know("us", os.getpid())
    door, other = board.door("it", echo.port), board.door("another", echo.port)
    with socket.create_connection((HOST, door)) as one, socket.create_connection((HOST, other)) as free:
        assert ask(one, b"a") == b"A"
        board.hold(*way)
        one.sendall(b"b")
        assert [ask(free, b"x") for _ in range(3)] == [b"X"] * 3, "other links pass"
        assert is_silent(one)
        board.heal()
        assert one.recv(100) == b"B"


def test_a_cut_resets_connections_over_a_held_link(board: Switchboard, echo: Echo) -> None:
    door = board.door("it", echo.port)
    with socket.create_connection((HOST, door)) as one:
        assert ask(one, b"a") == b"A"
        board.hold(CLIENT, "it")
        one.sendall(b"b")
        board.cut(CLIENT, "it")
        assert ends(one)


def ends(one: socket.socket) -> bool:
    """Whether the next that comes is the end of the connection."""
    try:
        return one.recv(100) == b""
    except ConnectionResetError:
        return True


def test_a_slow_link_takes_its_time_each_way(board: Switchboard, echo: Echo) -> None:
    door = board.door("it", echo.port)
    with socket.create_connection((HOST, door)) as one:
        board.slow(CLIENT, "it", 0.02)
        board.slow("it", CLIENT, 0.03)
        began = time.monotonic()
        assert ask(one, b"a") == b"A"
        assert time.monotonic() - began >= 0.05


def test_nobody_behind_the_door_is_a_connection_that_breaks(board: Switchboard, echo: Echo) -> None:
    door = board.door("it", echo.port)
    echo.close()
    with socket.create_connection((HOST, door)) as one:
        assert ends(one)
