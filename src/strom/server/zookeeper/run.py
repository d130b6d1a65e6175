"""``strom zookeeper``: run a ZooKeeper in the foreground until it is stopped.

Also ``python -m strom.server.zookeeper.run``, which needs none of the command line's libraries.

This process *becomes* ZooKeeper's Java, so killing it kills ZooKeeper, whatever the signal, and a supervisor watches
the right process. Beside it a *herald* stays: a small process that says when ZooKeeper serves, and on a leash stops it
when standard input ends. The herald holds one end of a pipe whose other end Java inherits, so it sees Java end and ends
too.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import select
import shutil
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from strom.errors import Disconnected, FolderInUse, InvalidSetting, NotInstalled, PortInUse, StromError
from strom.runtime.clock import Clock, SystemClock
from strom.runtime.java import java_home
from strom.runtime.private_folder import PRIVATE_MODE
from strom.runtime.streams import Stream, dial_tcp
from strom.server.zookeeper.class_path import class_path
from strom.server.zookeeper.ensemble import (
    LOGGING,
    TICK_MS,
    check_member,
    configuration,
    members_of,
)

MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
PORT = 2181
HOST = "127.0.0.1"
MEMORY_MB = 256

LOOK_AGAIN_S = 0.02
PROBE_S = 1.0
ADVISE_AFTER_S = 10.0
"""When the herald says what a server that does not serve yet is waiting for."""

_ANSWER_BYTES_MAX = 4_096


@dataclass(frozen=True)
class ZooKeeperRun:
    """How to run a ZooKeeper."""

    folder: Path
    host: str = HOST
    port: int = PORT
    own_id: int | None = None
    peers: str = ""
    tick_ms: int = TICK_MS
    memory_mb: int = MEMORY_MB
    ready_file: Path | None = None
    leash: bool = False
    java_options: Sequence[str] = field(default=())


def run(given: ZooKeeperRun) -> int:
    """Become ZooKeeper. Returns only to say why that is not possible."""
    members = members_of(given.peers)
    check_member(given.own_id, members)
    command = java_command(given)
    lock = take_folder(given)
    check_port(given.host, given.port)
    folder = given.folder.absolute()
    (folder / "zoo.cfg").write_text(
        configuration(str(folder), given.host, given.port, list(members.values()), tick_ms=given.tick_ms)
    )
    (folder / "log4j2.properties").write_text(LOGGING)
    if given.own_id is not None:
        (folder / "myid").write_text(f"{given.own_id}\n")
    if given.ready_file is not None:
        given.ready_file.unlink(missing_ok=True)
    ended, alive = os.pipe()
    _herald_beside(given, ended, alive, lock)
    os.close(ended)
    os.set_inheritable(alive, True)
    os.set_inheritable(lock, True)
    _without_input()
    os.execv(command[0], command)


def java_command(given: ZooKeeperRun) -> list[str]:
    """The command line of the server."""
    try:
        home = java_home.prepare() or os.environ.get("JAVA_HOME")
    except java_home.NoJava as error:
        raise NotInstalled(str(error), extra="spark") from error
    java = shutil.which("java") if home is None else str(Path(home) / "bin" / "java")
    assert java is not None, "there is a Java, or prepare() would have said so"
    folder = given.folder.absolute()
    return [
        java,
        f"-Xmx{given.memory_mb}m",
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        *given.java_options,
        *("-cp", class_path(), MAIN_CLASS, str(folder / "zoo.cfg")),
    ]


def take_folder(given: ZooKeeperRun) -> int:
    """Make the folder private to this user and this process; return the lock, which the process holds until it ends."""
    folder = given.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(PRIVATE_MODE)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InvalidSetting(
            f"{folder} cannot be the folder of a ZooKeeper: {error}", path=str(folder)
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise FolderInUse(
            f"another ZooKeeper runs on {folder}: stop it, or name another --data", path=str(folder)
        ) from None
    return lock


def check_port(host: str, port: int) -> None:
    """Refuse a port that somebody listens on: ZooKeeper itself would only log a Java trace."""
    if not 0 < port < 1 << 16:
        raise InvalidSetting(f"{port} is not a port: choose one from 1 to 65535", setting="--port")
    try:
        dial_tcp(host, port, PROBE_S).close()
    except Disconnected:
        return
    raise PortInUse(f"another program listens on {host}:{port}; choose another port", host=host, port=port)


def _without_input() -> None:
    """Java does not read standard input, and the herald's leash must be the only one to hold it."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


# --- the herald ----------------------------------------------------------------------------------------------


def _herald_beside(given: ZooKeeperRun, ended: int, alive: int, lock: int) -> None:
    """Start the herald, as nobody's child: Java would never ask how a child of its own ended."""
    server = os.getpid()
    between = os.fork()
    if between != 0:
        os.waitpid(between, 0)
        return
    if os.fork() != 0:
        os._exit(0)
    try:
        os.setsid()  # Ctrl-C is for ZooKeeper; the herald ends with it
        os.close(alive)
        os.close(lock)
        Herald(given, server, ended, SystemClock()).stay()
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(0)


class Herald:
    """Says when ZooKeeper serves, and holds its leash."""

    def __init__(self, given: ZooKeeperRun, server: int, ended: int, clock: Clock) -> None:
        self._given = given
        self._server = server
        self._ended = ended
        self._clock = clock

    def stay(self) -> None:
        """Return when there is nothing left to do."""
        began, advised = self._clock.monotonic(), False
        while not serves(self._given.host, self._given.port):
            if self._is_over(LOOK_AGAIN_S):
                return
            if not advised and self._given.own_id and self._clock.monotonic() - began > ADVISE_AFTER_S:
                advised = True
                print(
                    "waiting for the other servers of this ZooKeeper: it serves with a majority", flush=True
                )
        self._say_ready()
        while self._given.leash and not self._is_over(None):
            pass

    def _is_over(self, wait_s: float | None) -> bool:
        """Wait; whether ZooKeeper ended, or was stopped here because the leash did."""
        watched = [self._ended, 0] if self._given.leash else [self._ended]
        readable = select.select(watched, [], [], wait_s)[0]
        if self._ended in readable:
            return True
        if readable and not os.read(0, 4096):
            os.kill(self._server, signal.SIGTERM)
            return True
        return False

    def _say_ready(self) -> None:
        given = self._given
        address = f"{given.host}:{given.port}"
        print(f"ZooKeeper is ready at {address}\n  data    {given.folder}\nStop with Ctrl-C.", flush=True)
        if given.ready_file is not None:
            temporary = given.ready_file.with_name(given.ready_file.name + ".tmp")
            temporary.write_text(json.dumps({"address": address, "pid": self._server}))
            temporary.replace(given.ready_file)


def serves(host: str, port: int) -> bool:
    """Whether a ZooKeeper serves there: one of several does so only with a majority."""
    return mode_of(host, port) is not None


def mode_of(host: str, port: int) -> str | None:
    """``standalone``, ``leader`` or ``follower``; None while it does not serve."""
    try:
        stream = dial_tcp(host, port, PROBE_S)
    except Disconnected:
        return None
    try:
        stream.send([b"srvr"])
        told = _all_of(stream)
    except (StromError, TimeoutError):
        return None
    finally:
        stream.close()
    lines = told.decode(errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("Mode:")), None)


def _all_of(stream: Stream) -> bytes:
    """What is sent until the other side closes, as far as it can matter here."""
    room = memoryview(bytearray(_ANSWER_BYTES_MAX))
    filled = 0
    while filled < len(room) and (count := stream.receive(room[filled:], PROBE_S)):
        filled += count
    return bytes(room[:filled])


def main(argv: Sequence[str]) -> int:
    """The command line of ``python -m strom.server.zookeeper.run``."""
    parser = argparse.ArgumentParser(
        prog="python -m strom.server.zookeeper.run", description="Run a ZooKeeper."
    )
    parser.add_argument("--data", type=Path, required=True, help="its folder")
    parser.add_argument("--host", default=HOST, help="the address for clients")
    parser.add_argument("--port", type=int, default=PORT, help="the port for clients")
    parser.add_argument("--id", type=int, help="of this server, if there are several")
    parser.add_argument("--peers", default="", help="all servers: 1=host:2888:3888,2=…")
    parser.add_argument("--tick", type=int, default=TICK_MS, help="in milliseconds")
    parser.add_argument("--memory", type=int, default=MEMORY_MB, help="in MB")
    parser.add_argument("--ready-file", type=Path, help="written once it serves")
    parser.add_argument("--leash", action="store_true", help="stop when standard input ends")
    parser.add_argument("--java-option", action="append", default=[], help="for Java; repeat it")
    given = parser.parse_args(argv)
    try:
        return run(
            ZooKeeperRun(
                folder=given.data,
                host=given.host,
                port=given.port,
                own_id=given.id,
                peers=given.peers,
                tick_ms=given.tick,
                memory_mb=given.memory,
                ready_file=given.ready_file,
                leash=given.leash,
                java_options=tuple(given.java_option),
            )
        )
    except StromError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
