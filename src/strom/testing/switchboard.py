"""A network between processes of this machine whose links can be held, slowed and cut, each by itself and each way.

    with Switchboard() as board:
        door = board.door("tablet-2", port)         # connect here to reach what listens on ``port``
        board.know("tablet-1", pid)                 # connections of this process come from "tablet-1"
        board.hold("tablet-1", "tablet-2")          # nothing passes this way any more; nobody is told
        board.heal()                                # what was held arrives now, late

Who opened a connection is found by the owner of its socket; whoever is not known is ``CLIENT``. Held bytes are not
lost: as after a cut of a real network they arrive late, unless ``cut`` resets the connections. It is a process of its
own, so that a busy test does not slow the network down.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass
from types import TracebackType
from typing import Any

HOST = "127.0.0.1"
CHUNK_BYTES = 1 << 16
CLIENT = "client"

# sock_diag(7): one question about one socket, and its answer
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
NETLINK_HEAD_BYTES = 16
ALL_STATES = 0xFFFFFFFF
ANY_SOCKET = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
INODE_AT = NETLINK_HEAD_BYTES + 68


class Switchboard:
    """The network, from the side of whoever spoils it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "strom.testing.switchboard"],
            stdin=subprocess.PIPE,  # it ends when this pipe closes
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def door(self, target: str, port: int, source: str = "") -> int:
        """Listen for connections to ``target``, which itself listens on ``port``; returns where.

        A door that only ``source`` uses spares finding out who comes.
        """
        return int(self._say("door", target, port, source))

    def know(self, name: str, pid: int) -> None:
        """Connections of this process come from ``name``, from now on."""
        self._say("know", name, pid)

    def hold(self, source: str, target: str) -> None:
        """Let nothing pass from ``source`` to ``target``, on whatever side the connection was opened."""
        self._say("hold", source, target)

    def slow(self, source: str, target: str, seconds: float) -> None:
        """Let everything from ``source`` to ``target`` wait this long."""
        self._say("slow", source, target, seconds)

    def cut(self, one: str, other: str) -> None:
        """Reset the connections between these two."""
        self._say("cut", one, other)

    def heal(self) -> None:
        """Let everything pass on every link."""
        self._say("heal")

    def _say(self, *words: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it, and with it every connection."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Switchboard:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


# --- the process -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Call:
    """One connection: who opened it, to whom, and its two ends."""

    source: str
    target: str
    ends: tuple[asyncio.StreamWriter, asyncio.StreamWriter]

    def cut(self) -> None:
        for end in self.ends:
            end.transport.abort()


class _Exchange:
    """Forwards connections by the rules of the moment."""

    def __init__(self) -> None:
        self._held: set[tuple[str, str]] = set()
        self._delay_s: dict[tuple[str, str], float] = {}
        self._names: dict[int, str] = {}
        self._calls: set[_Call] = set()
        self._changed = asyncio.Event()
        self._doors: list[asyncio.Server] = []

    async def run(self, commands: asyncio.StreamReader) -> None:
        """Do what each line says, until there are no more."""
        while line := await commands.readline():
            name, *words = json.loads(line)
            found = await getattr(self, name)(*words)
            self._changed.set()
            self._changed = asyncio.Event()
            print(json.dumps(found), flush=True)

    async def door(self, target: str, port: int, source: str) -> int:
        async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(source or self._source(writer), target, port, reader, writer)

        server = await asyncio.start_server(taken, HOST, 0)
        self._doors.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def know(self, name: str, pid: int) -> None:
        self._names = {number: one for number, one in self._names.items() if one != name} | {pid: name}

    async def hold(self, source: str, target: str) -> None:
        self._held.add((source, target))

    async def slow(self, source: str, target: str, seconds: float) -> None:
        self._delay_s[source, target] = seconds

    async def cut(self, one: str, other: str) -> None:
        for call in [call for call in self._calls if {call.source, call.target} == {one, other}]:
            call.cut()

    async def heal(self) -> None:
        self._held.clear()
        self._delay_s.clear()

    # --- forwarding ---------------------------------------------------------------------------------------------

    async def _serve(
        self, source: str, target: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            back, forth = await asyncio.open_connection(HOST, port)
        except OSError:
            writer.transport.abort()
            return
        call = _Call(source, target, (writer, forth))
        self._calls.add(call)
        try:
            await asyncio.gather(
                self._pump(reader, forth, (source, target)), self._pump(back, writer, (target, source))
            )
        finally:
            self._calls.discard(call)
            call.cut()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: tuple[str, str]
    ) -> None:
        try:
            while chunk := await reader.read(CHUNK_BYTES):
                await self._passes(way)
                writer.write(chunk)
                await writer.drain()
            await self._passes(way)  # that it ended is not heard either
            writer.write_eof()
        except OSError:
            await self._passes(way)
            writer.transport.abort()

    async def _passes(self, way: tuple[str, str]) -> None:
        """Wait as long as this way is slow or held."""
        if (delay_s := self._delay_s.get(way)) is not None:
            await asyncio.sleep(delay_s)
        while way in self._held:
            await self._changed.wait()

    def _source(self, writer: asyncio.StreamWriter) -> str:
        """Who opened this connection."""
        inode = _inode_of(writer.get_extra_info("peername"), writer.get_extra_info("sockname"))
        return next((name for pid, name in self._names.items() if inode in _sockets_of(pid)), CLIENT)


def _inode_of(local: tuple[str, int], remote: tuple[str, int]) -> str:
    """The inode of the socket of this machine that is connected so. Asked of the kernel: /proc/net/tcp is slow."""
    addresses = struct.pack(
        ">HH4s12x4s12x", local[1], remote[1], socket.inet_aton(local[0]), socket.inet_aton(remote[0])
    )
    asked = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, ALL_STATES) + addresses + ANY_SOCKET
    head = struct.pack("=IHHII", NETLINK_HEAD_BYTES + len(asked), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.send(head + asked)
        answer = kernel.recv(CHUNK_BYTES)
    if struct.unpack_from("=H", answer, 4)[0] != SOCK_DIAG_BY_FAMILY:
        return ""  # it is closed already
    return str(struct.unpack_from("=I", answer, INODE_AT)[0])


def _sockets_of(pid: int) -> set[str]:
    """The inodes of all sockets of a process."""
    folder = f"/proc/{pid}/fd"
    try:
        links = [_link(f"{folder}/{number}") for number in os.listdir(folder)]
    except OSError:
        return set()  # the process is gone
    return {one[len("socket:[") : -1] for one in links if one.startswith("socket:[")}


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # closed meanwhile


async def _main() -> None:
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    await _Exchange().run(commands)


if __name__ == "__main__":
    asyncio.run(_main())
