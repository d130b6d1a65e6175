"""A real ZooKeeper in separate processes, for tests and benchmarks: one server, or several that can be killed.

    with ZooKeeperEnsemble(folder, size=3) as zookeeper:
        store = ZooKeeperStore.open(ZooKeeperOptions(zookeeper.addresses))
        zookeeper.leader().kill()

Ports are free ones and stay the same over ``start``, so that clients find a server again. Each server stops when this
process ends. Starting one takes about a second: share it between tests, and give each a root of its own.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from strom.server.zookeeper.run import mode_of

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.01
HOST = "127.0.0.1"

PORTS = range(12000, 32000)
"""Below those that systems give to outgoing connections."""
QUICK_START = ("-XX:TieredStopAtLevel=1", "-Dzookeeper.preAllocSize=256", "-Xshare:auto")


class ZooKeeperFailed(RuntimeError):
    """ZooKeeper did not start."""


class ZooKeeperProcess:
    """One server, through starts and stops on the same folder."""

    def __init__(
        self, folder: Path, port: int, *, own_id: int | None = None, peers: str = "", memory_mb: int = 64
    ) -> None:
        self.folder = folder
        self.port = port
        self.own_id = own_id
        self._peers = peers
        self._memory_mb = memory_mb
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0.0

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The process: Java itself."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def mode(self) -> str | None:
        """``standalone``, ``leader`` or ``follower``; None if it does not serve."""
        return mode_of(HOST, self.port) if self.running else None

    def begin(self) -> None:
        """Start it, without waiting: one of several serves only with a majority."""
        assert self._process is None
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ready_path.unlink(missing_ok=True)
        self._began = time.monotonic()
        with self._output_path.open("ab") as output:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.PIPE,  # it stops when this pipe closes
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait_ready(self) -> None:
        """Wait until it serves."""
        assert self._process is not None
        while not self._ready_path.exists():
            code = self._process.poll()
            if code is not None:
                self._ended()
                raise ZooKeeperFailed(f"ZooKeeper ended with code {code}:\n{self.output()}")
            if time.monotonic() - self._began > START_TIMEOUT_S:
                self.kill()
                raise ZooKeeperFailed(f"ZooKeeper did not serve in {START_TIMEOUT_S} s:\n{self.output()}")
            time.sleep(POLL_S)
        assert json.loads(self._ready_path.read_text())["pid"] == self.pid

    def start(self) -> ZooKeeperProcess:
        """Start it and wait until it serves."""
        self.begin()
        self.wait_ready()
        return self

    def command(self) -> list[str]:
        """The command that starts it."""
        ensemble = [] if self.own_id is None else ["--id", str(self.own_id), "--peers", self._peers]
        options = [part for option in QUICK_START for part in ("--java-option=" + option,)]
        return [
            *(sys.executable, "-m", "strom.server.zookeeper.run", "--data", str(self.folder / "data")),
            *("--port", str(self.port), "--memory", str(self._memory_mb)),
            *("--ready-file", str(self._ready_path), "--leash"),
            *ensemble,
            *options,
        ]

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._ended()

    def stop(self) -> int:
        """Stop it; returns the exit code."""
        process = self._process
        if process is None:
            return 0
        self.resume()
        process.terminate()
        try:
            code = process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ZooKeeperFailed(f"ZooKeeper did not stop in {STOP_TIMEOUT_S} s:\n{self.output()}") from None
        self._ended()
        return code

    def pause(self) -> None:
        """Freeze it (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        if self.running:
            os.kill(self.pid, signal.SIGCONT)

    def _ended(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def output(self) -> str:
        """What it printed and logged so far."""
        return self._output_path.read_text(errors="replace") if self._output_path.exists() else ""

    @property
    def _output_path(self) -> Path:
        return self.folder / "output.txt"

    @property
    def _ready_path(self) -> Path:
        return self.folder / "ready.json"

    def __enter__(self) -> ZooKeeperProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


class ZooKeeperEnsemble:
    """Several servers that are one ZooKeeper; with ``size=1`` one that is alone."""

    def __init__(self, folder: Path | str, size: int = 3, memory_mb: int = 64) -> None:
        ports = free_ports(3 * size)
        peers = ",".join(
            f"{number}={HOST}:{ports[3 * number - 2]}:{ports[3 * number - 1]}"
            for number in range(1, size + 1)
        )
        self.servers = [
            ZooKeeperProcess(
                Path(folder) / f"zookeeper-{number}",
                ports[3 * number - 3],
                own_id=number if size > 1 else None,
                peers=peers,
                memory_mb=memory_mb,
            )
            for number in range(1, size + 1)
        ]

    @property
    def addresses(self) -> str:
        """``host:port,host:port,…`` of all servers, running or not."""
        return ",".join(one.address for one in self.servers)

    def start(self) -> ZooKeeperEnsemble:
        """Start those that do not run, and wait until all serve."""
        begun = [one for one in self.servers if not one.running]
        try:
            for one in begun:
                one.begin()
            for one in begun:
                one.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def leader(self) -> ZooKeeperProcess:
        """The server that leads now; fails if none does."""
        return next(one for one in self.servers if one.mode() in ("leader", "standalone"))

    def serving(self) -> list[ZooKeeperProcess]:
        """The servers that serve now."""
        return [one for one in self.servers if one.mode() is not None]

    def kill(self) -> None:
        """Kill all of them with SIGKILL."""
        for one in self.servers:
            one.kill()

    def stop(self) -> None:
        """Stop all of them."""
        for one in self.servers:
            one.stop()

    def __enter__(self) -> ZooKeeperEnsemble:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


def free_ports(count: int) -> Sequence[int]:
    """Ports that are free now, all different; the system gives none of them to anybody while their server is down."""
    sockets: list[socket.socket] = []
    try:
        while len(sockets) < count:
            one = socket.socket()
            try:
                one.bind((HOST, PORTS.start + secrets.randbelow(len(PORTS))))
            except OSError:
                one.close()  # somebody has it
            else:
                sockets.append(one)
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()
