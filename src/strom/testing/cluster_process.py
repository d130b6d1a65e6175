"""A real cluster on this machine, for tests and benchmarks: every role a process that can be killed by itself.

    with ClusterProcess(folder, tablets=3, coordinators=2) as cluster:
        db = strom.connect(cluster.address)
        cluster.tablets[1].kill()           kill -9; also pause, resume, stop
        cluster.tablets[1].start()          the same server again, on the same folder and ports

ZooKeeper is a real one (``zookeepers`` of them). Nothing is restarted by itself, and nothing outlives this process.
With a :class:`~strom.testing.switchboard.Switchboard` every connection goes through it: of clients, between servers, to
ZooKeeper. A process is known there by the name of its folder (``tablet-1``, ``coordinator-2``, ``zookeeper-3``).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal

from strom.testing.process import ForegroundProcess
from strom.testing.switchboard import CLIENT, Switchboard
from strom.testing.zookeeper import HOST, ZooKeeperEnsemble, free_ports

SECRET = "a cluster of tests, whose secret everybody may know"


class RoleProcess(ForegroundProcess):
    """``strom coordinator`` or ``strom tablet``."""

    def __init__(
        self,
        role: Literal["coordinator", "tablet"],
        folder: Path,
        settings: Mapping[str, object],
        network: tuple[Switchboard, ZooKeeperEnsemble] | None = None,
    ) -> None:
        super().__init__(folder, settings)
        self.role = role
        self._board = None
        if network is not None:
            self._board, zookeeper = network
            self.settings |= self._doors(self._board, zookeeper)

    def _doors(self, board: Switchboard, zookeeper: ZooKeeperEnsemble) -> dict[str, object]:
        """Where it listens, where others find it, and where it finds ZooKeeper: behind the switchboard."""
        clients, servers = free_ports(2)
        keepers = (board.door(one.folder.name, one.port, self.folder.name) for one in zookeeper.servers)
        return {
            "zookeeper.addresses": ",".join(f"{HOST}:{port}" for port in keepers),
            "bind.listeners": f"CLIENT://{HOST}:{clients}",
            "advertised.listeners": f"CLIENT://{HOST}:{board.door(self.folder.name, clients, CLIENT)}",
            "cluster.listener": f"{HOST}:{servers}",
            "cluster.advertised-listener": f"{HOST}:{board.door(self.folder.name, servers)}",
        }

    def begin(self) -> None:
        """Start it, without waiting."""
        super().begin()
        if self._board is not None and self._process is not None:
            self._board.know(self.folder.name, self._process.pid)

    def command(self, ready_path: Path) -> list[str]:
        """The command that starts it."""
        return [
            *(sys.executable, "-X", "faulthandler", "-m", "strom.server.process.roles", self.role),
            *("--ready-file", str(ready_path), "--leash"),
            *self._pairs({"data.dir": self.folder, "http.port": -1, **self.settings}),
        ]


class ClusterProcess:
    """All processes of one cluster."""

    def __init__(
        self,
        folder: Path | str,
        *,
        tablets: int = 3,
        coordinators: int = 1,
        zookeepers: int = 1,
        settings: Mapping[str, object] | None = None,
        board: Switchboard | None = None,
    ) -> None:
        """Tablet servers are numbered from 1; each is in a rack of its own."""
        self.folder = Path(folder)
        self.zookeeper = ZooKeeperEnsemble(self.folder, size=zookeepers)
        secret = self.folder / "secret"
        shared = {
            "metadata.store": "zookeeper",
            "zookeeper.addresses": self.zookeeper.addresses,
            "cluster.secret-file": secret,
            **(settings or {}),
        }
        network = None if board is None else (board, self.zookeeper)
        self._secret = secret
        self.coordinators = [
            RoleProcess("coordinator", self.folder / f"coordinator-{number}", shared, network)
            for number in range(1, coordinators + 1)
        ]
        self.tablets = {
            number: RoleProcess(
                "tablet",
                self.folder / f"tablet-{number}",
                {"server.id": number, "server.rack": f"rack-{number}", **shared},
                network,
            )
            for number in range(1, tablets + 1)
        }

    @property
    def roles(self) -> Sequence[RoleProcess]:
        """Every coordinator and tablet server."""
        return [*self.coordinators, *self.tablets.values()]

    @property
    def address(self) -> str:
        """All coordinators, for a client that finds one of them."""
        return ",".join(one.address for one in self.coordinators)

    def start(self) -> ClusterProcess:
        """Start everything that does not run, and wait until all of it is ready."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._secret.write_text(SECRET)
        self._secret.chmod(0o600)
        try:
            self.zookeeper.start()
            begun = [one for one in self.roles if not one.running]
            for one in begun:
                one.begin()
            for one in begun:
                one.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def stop(self) -> list[int]:
        """Stop all roles in order, the coordinators first; returns their exit codes."""
        return [one.stop() for one in self.roles]

    def close(self) -> None:
        """End everything."""
        for one in self.roles:
            one.kill()
            one.close()
        self.zookeeper.kill()

    def output(self) -> str:
        """What all roles printed and logged so far."""
        return "\n".join(f"--- {one.folder.name}\n{one.output()}" for one in self.roles)

    def __enter__(self) -> ClusterProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
