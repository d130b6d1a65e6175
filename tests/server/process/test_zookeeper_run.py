"""How a ZooKeeper is asked whether it serves, and what its Java is told, without one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from strom.errors import InvalidSetting, PortInUse
from strom.server.zookeeper.run import MAIN_CLASS, ZooKeeperRun, check_port, java_command, mode_of, serves
from strom.testing.zookeeper import free_ports

HOST = "127.0.0.1"


@contextmanager
def answering(pieces: Sequence[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """A server that takes one question and sends an answer in pieces; its port, and what it was asked."""
    asked: list[bytes] = []
    with closing(socket.create_server((HOST, 0))) as listening:

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                asked.append(connection.recv(100))
                for piece in pieces:
                    connection.sendall(piece)

        thread = threading.Thread(target=answer)
        thread.start()
        yield listening.getsockname()[1], asked
        thread.join()


@pytest.mark.parametrize(
    ("pieces", "mode"),
    [
        ([b"Zookeeper version: 3.9\nMode: standalone\nNode count: 5\n"], "standalone"),
        ([b"Zookeeper version: 3.9\nMo", b"de: foll", b"ower"], "follower"),
        ([b"Latency: 1\n" * 100, b"Mode:leader\n"], "leader"),
        ([b"This ZooKeeper instance is not currently serving requests\n"], None),
        ([b"In what Mode: none\n"], None),
        ([b"\xff\xfe\nMode: observer\n"], "observer"),
        ([b""], None),
    ],
)
def test_what_it_says_of_itself_is_found_in_its_answer(pieces: Sequence[bytes], mode: str | None) -> None:
    with answering(pieces) as (port, asked):
        assert mode_of(HOST, port) == mode
    assert asked == [b"srvr"]


def test_an_answer_without_end_is_read_in_part() -> None:
    with closing(socket.create_server((HOST, 0))) as listening:
        talker = threading.Thread(target=_talk, args=(listening,))
        talker.start()
        assert mode_of(HOST, listening.getsockname()[1]) is None
        talker.join()


def _talk(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    with connection:
        try:
            while True:
                connection.sendall(b"x" * 4_096)
        except OSError:
            pass  # it has heard enough


def test_where_nobody_listens_nobody_serves_and_the_port_is_free() -> None:
    (port,) = free_ports(1)
    assert not serves(HOST, port)
    check_port(HOST, port)
    with closing(socket.create_server((HOST, 0))) as taken, pytest.raises(PortInUse, match="another program"):
        check_port(HOST, taken.getsockname()[1])


@pytest.mark.parametrize("port", [-1, 0, 65536])
def test_a_number_that_no_port_has_is_refused(port: int) -> None:
    with pytest.raises(InvalidSetting, match=f"{port} is not a port"):
        check_port(HOST, port)


def test_java_gets_its_memory_what_was_asked_for_and_the_configuration_last(tmp_path: Path) -> None:
    java, *words = java_command(ZooKeeperRun(tmp_path, memory_mb=77, java_options=("-Da=1", "-Db=2")))
    assert Path(java).name == "java"
    assert "-Xmx77m" in words
    assert words.index("-Da=1") + 1 == words.index("-Db=2") < words.index("-cp")
    assert words[-2:] == [MAIN_CLASS, str(tmp_path / "zoo.cfg")]
    assert f"-Dlog4j2.configurationFile={tmp_path / 'log4j2.properties'}" in words
