"""A real Apache Fluss: ZooKeeper, a coordinator and tablet servers, each a process, as it comes.

All of them are in the server's jar. Java chooses the heap, as it does with Fluss' own start scripts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fluss

from benchmarks.peer_jars import FLUSS
from benchmarks.peer_java import LOOPBACK, JavaProcess, accepts, await_true, free_ports, written

ZOOKEEPER = "org.apache.fluss.shaded.zookeeper3.org.apache.zookeeper.server.quorum.QuorumPeerMain"
COORDINATOR = "org.apache.fluss.server.coordinator.CoordinatorServer"
TABLET_SERVER = "org.apache.fluss.server.tablet.TabletServer"
OPTIONS = ("--add-opens=java.base/java.nio=ALL-UNNAMED",)
"""Arrow in Java reaches into this package."""


@dataclass(frozen=True)
class FlussServer:
    """A cluster that answers."""

    address: str
    pids: list[int]
    started_in_s: float
    """From the first command to tablet servers that are known."""
    tablets: dict[int, JavaProcess]
    """By their numbers, from 0."""


@contextmanager
def fluss_server(folder: Path, tablets: int = 1) -> Iterator[FlussServer]:
    """A fresh one in this folder."""
    folder.mkdir(parents=True)
    keeper, coordinator, *ports = free_ports(2 + tablets)
    began = time.monotonic()
    processes: list[JavaProcess] = []
    try:
        path = written(folder / "zoo.cfg", zookeeper_settings(folder / "zookeeper", keeper), "=")
        processes.append(JavaProcess(FLUSS, ZOOKEEPER, [str(path)], folder))
        await_true(lambda: accepts(keeper), processes)
        roles = [(COORDINATOR, coordinator, 0), *((TABLET_SERVER, port, n) for n, port in enumerate(ports))]
        for main, port, number in roles:
            home = folder / f"{main.rpartition('.')[2]}-{number}"
            home.mkdir()
            told = settings(folder, keeper, port, number=number, copies=tablets)
            written(home / "server.yaml", told, ": ")
            processes.append(JavaProcess(FLUSS, main, ["--configDir", str(home)], home, OPTIONS))
        address = f"{LOOPBACK}:{coordinator}"
        await_true(lambda: all(map(accepts, (coordinator, *ports))) and _answers(address, tablets), processes)
        pids = [one.process.pid for one in processes]
        yield FlussServer(address, pids, time.monotonic() - began, dict(enumerate(processes[2:])))
    finally:
        for one in reversed(processes):
            one.end()


def zookeeper_settings(data: Path, port: int) -> dict[str, object]:
    """One server, loopback only, without its page for administrators."""
    return {
        "dataDir": data,
        "clientPort": port,
        "clientPortAddress": LOOPBACK,
        "admin.enableServer": "false",
        "tickTime": 2000,
    }


def settings(folder: Path, keeper: int, port: int, *, number: int = 0, copies: int = 1) -> dict[str, object]:
    """Of the coordinator and of the tablet server alike; what is not said is as Fluss ships it."""
    return {
        "zookeeper.address": f"{LOOPBACK}:{keeper}",
        "bind.listeners": f"FLUSS://{LOOPBACK}:{port}",
        "tablet-server.id": number,
        "data.dir": folder / f"data-{number}",
        "remote.data.dir": folder / "remote",
        "default.bucket.number": 1,
        "default.replication.factor": copies,
    }


def _answers(address: str, tablets: int) -> bool:
    """Whether the coordinator knows so many tablet servers."""

    async def ask() -> bool:
        config = fluss.Config({"bootstrap.servers": address})
        async with await fluss.FlussConnection.create(config) as peer:
            nodes = await peer.get_admin().get_server_nodes()
        return sum(one.server_type == "TabletServer" for one in nodes) == tablets

    try:
        return asyncio.run(ask())
    except fluss.FlussError:
        return False
