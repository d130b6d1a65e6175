"""References with nothing of Strom in them: a raw socket into a file, a file into a raw socket, an asyncio echo.

Each runs in a process of its own, as Strom's server does: ``python -m benchmarks.raw sink|source|echo …``.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHUNK = 1 << 20
LENGTH = struct.Struct("<q")


def sink(path: str) -> None:
    """Accept connections one by one; write what each sends to a file, answer one byte when it is all written."""
    with _listening() as server:
        buffer = memoryview(bytearray(CHUNK))
        while True:
            connection, _ = server.accept()
            with connection, open(path, "wb", buffering=0) as file:
                left = LENGTH.unpack(_exactly(connection, LENGTH.size))[0]
                while left > 0:
                    count = connection.recv_into(buffer[: min(left, CHUNK)])
                    if not count:
                        break
                    file.write(buffer[:count])
                    left -= count
                connection.sendall(b"!")


def source(path: str) -> None:
    """Send a file's bytes to whoever connects."""
    with _listening() as server:
        while True:
            connection, _ = server.accept()
            with connection, open(path, "rb", buffering=0) as file:
                while chunk := file.read(CHUNK):
                    connection.sendall(chunk)


def echo() -> None:
    """An asyncio echo server, the plainest there is."""

    class Echo(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            self.transport.write(data)  # type: ignore[attr-defined]

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def _listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        yield server


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return data


@contextmanager
def started(role: str, *words: str) -> Iterator[tuple[int, int]]:
    """Start one of the above as a process; gives (port, pid); ends it afterwards."""
    command = [sys.executable, "-m", "benchmarks.raw", role, *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.pid
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def push(port: int, chunks: list[bytes]) -> float:
    """Push chunks through a raw socket into the sink's file; seconds until it is all there."""
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(LENGTH.pack(sum(map(len, chunks))))
        for chunk in chunks:
            connection.sendall(chunk)
        assert connection.recv(1) == b"!"
    return time.perf_counter() - began


def pull(port: int, sizes: list[int]) -> Iterator[memoryview]:
    """Read frames of known sizes from the source, each into a buffer of its own."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for size in sizes:
            frame = memoryview(bytearray(size))
            filled = 0
            while filled < size:
                count = connection.recv_into(frame[filled:])
                if not count:
                    raise ConnectionError("the source ended early")
                filled += count
            yield frame


def echo_round_trips(port: int, count: int, size: int = 100, *, pause_s: float = 0.0) -> list[float]:
    """Seconds of each round trip to the asyncio echo server, by asyncio on this side too.

    With ``pause_s`` between them the processors' caches and the sleeping processes are as cold as on a quiet stream.
    """

    async def run() -> list[float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        payload = b"x" * size
        seconds = []
        for _ in range(count):
            began = time.perf_counter()
            writer.write(payload)
            await reader.readexactly(size)
            seconds.append(time.perf_counter() - began)
            if pause_s:
                time.sleep(pause_s)  # noqa: ASYNC251  # the process shall sleep, not its loop
        writer.close()
        await writer.wait_closed()
        return seconds

    return asyncio.run(run())


if __name__ == "__main__":
    {"sink": sink, "source": source, "echo": echo}[sys.argv[1]](*sys.argv[2:])
