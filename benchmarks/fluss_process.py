"""A real Apache Fluss: ZooKeeper, a coordinator and a tablet server, each a process, as it comes.

All three are in the server's jar. Java chooses the heap, as it does with Fluss' own start scripts.
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
    """From the first command to a tablet server that is known."""


@contextmanager
def fluss_server(folder: Path) -> Iterator[FlussServer]:
    """A fresh one in this folder."""
    folder.mkdir(parents=True)
    keeper, coordinator, tablet = free_ports(3)
    began = time.monotonic()
    processes: list[JavaProcess] = []
    try:
        path = written(folder / "zoo.cfg", zookeeper_settings(folder / "zookeeper", keeper), "=")
        processes.append(JavaProcess(FLUSS, ZOOKEEPER, [str(path)], folder))
        await_true(lambda: accepts(keeper), processes)
        for main, port in ((COORDINATOR, coordinator), (TABLET_SERVER, tablet)):
            home = folder / main.rpartition(".")[2]
            home.mkdir()
            written(home / "server.yaml", settings(folder, keeper, port), ": ")
            processes.append(JavaProcess(FLUSS, main, ["--configDir", str(home)], home, OPTIONS))
        address = f"{LOOPBACK}:{coordinator}"
        await_true(lambda: accepts(coordinator) and accepts(tablet) and _answers(address), processes)
        yield FlussServer(address, [one.process.pid for one in processes], time.monotonic() - began)
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


def settings(folder: Path, keeper: int, port: int) -> dict[str, object]:
    """Of the coordinator and of the tablet server alike; what is not said is as Fluss ships it."""
    return {
        "zookeeper.address": f"{LOOPBACK}:{keeper}",
        "bind.listeners": f"FLUSS://{LOOPBACK}:{port}",
        "tablet-server.id": 0,
        "data.dir": folder / "data",
        "remote.data.dir": folder / "remote",
        "default.bucket.number": 1,
        "default.replication.factor": 1,
    }


def _answers(address: str) -> bool:
    """Whether the coordinator knows a tablet server."""

    async def ask() -> bool:
        config = fluss.Config({"bootstrap.servers": address})
        async with await fluss.FlussConnection.create(config) as peer:
            return any(one.server_type == "TabletServer" for one in await peer.get_admin().get_server_nodes())

    try:
        return asyncio.run(ask())
    except fluss.FlussError:
        return False
