"""A real cluster for the questions about it: three tablet servers, two coordinators, a ZooKeeper, each a process."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import strom
from benchmarks.harness import cpu_seconds
from benchmarks.peer_java import LOOPBACK, free_ports
from strom.testing.cluster_process import ClusterProcess
from strom.testing.cut_proxy import CutProxy

TABLETS = 3
START_TIMEOUT_S = 180.0
"""Six processes start at once, at times beside eight of Java's: one that is slow should not end a question."""
SETTLED_TIMEOUT_S = 120.0
POLL_S = 0.02
REST_S = 0.5
REST_CPU = 0.15
"""Of one core, all servers together; they ask each other for news all the time."""
REST_TIMEOUT_S = 15.0


@contextmanager
def cluster(
    folder: Path, settings: Mapping[str, object] | None = None, *, tablets: int = TABLETS
) -> Iterator[tuple[ClusterProcess, strom.Database]]:
    """A fresh one, and a connection to it."""
    made = patient(ClusterProcess(folder, tablets=tablets, coordinators=2, settings=settings))
    with made as running, strom.connect(running.address) as db:
        yield running, db


def patient(made: ClusterProcess) -> ClusterProcess:
    """The same cluster; its processes may take long to start."""
    for one in made.roles:
        one.start_timeout_s = START_TIMEOUT_S
    return made


def copies(factor: int) -> dict[str, str]:
    """The properties of a table with so many copies."""
    return {"table.replication.factor": str(factor)}


def server_pids(running: ClusterProcess) -> list[int]:
    """The processes that do the work of writers and readers."""
    return [one.pid for one in running.tablets.values()]


def settle(db: strom.Database) -> None:
    """Wait until every bucket has a leader, and all its copies are in sync."""
    began = time.monotonic()
    while lacking := [one for one in db.bucket_copies() if one.lacks or one.moving]:
        if time.monotonic() - began > SETTLED_TIMEOUT_S:
            raise TimeoutError(f"not in sync after {SETTLED_TIMEOUT_S:g} s: {lacking[0]}")
        time.sleep(POLL_S)


def rest(running: ClusterProcess) -> None:
    """Wait a while for upkeep of what was written: every server does it for its copies, beside whatever is measured."""
    end = time.monotonic() + REST_TIMEOUT_S
    while time.monotonic() < end:
        before = sum(map(cpu_seconds, server_pids(running)))
        time.sleep(REST_S)
        if sum(map(cpu_seconds, server_pids(running))) - before < REST_CPU * REST_S:
            return


def let_lead(db: strom.Database, server: int, *tables: str) -> None:
    """Let one server lead the first bucket of each table."""
    for name in tables:
        db.move_bucket(name, 0, leader=server)
    began = time.monotonic()
    while any(db.bucket_copies(name)[0].leader != server for name in tables):
        if time.monotonic() - began > SETTLED_TIMEOUT_S:
            raise TimeoutError(f"server {server} does not lead")
        time.sleep(POLL_S)


class CutOff:
    """Everything that one tablet server hears and is told goes through here, until it is cut off.

    Its listeners and its way to ZooKeeper are proxies, which lose what passes; no side is told.
    """

    def __init__(self, running: ClusterProcess, server: int) -> None:
        """Before the cluster starts."""
        client, inner = free_ports(2)
        addresses = [part.rpartition(":")[2] for part in running.zookeeper.addresses.split(",")]
        self._open = ExitStack()
        self._proxies = [
            self._open.enter_context(CutProxy(port)) for port in (client, inner, *map(int, addresses))
        ]
        running.tablets[server].settings.update(
            {
                "bind.listeners": f"CLIENT://{LOOPBACK}:{client}",
                "advertised.listeners": f"CLIENT://{self._proxies[0].address}",
                "cluster.listener": f"{LOOPBACK}:{inner}",
                "cluster.advertised-listener": self._proxies[1].address,
                "zookeeper.addresses": ",".join(one.address for one in self._proxies[2:]),
            }
        )

    def cut(self) -> None:
        """From now on nothing arrives, in either direction."""
        for one in self._proxies:
            one.lose_requests()
            one.lose_answers()

    def heal(self) -> None:
        """As before; connections that lost something are gone."""
        for one in self._proxies:
            one.cut()
            one.heal()

    def close(self) -> None:
        """Stop forwarding."""
        self._open.close()
