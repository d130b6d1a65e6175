"""``strom up --servers N``: a whole cluster on this machine, for trying out. Every role is a process of its own.

    <folder>/secret             what the servers share, drawn at the first start
    <folder>/zookeeper          the metadata
    <folder>/coordinator-1 …    two coordinators from three servers on, otherwise one
    <folder>/tablet-0 …         the tablet servers
    <folder>/lake               tables in the lake

A process that ends is started again, so one can kill them and see what the others do. They are on a leash: when this
process ends, however it does, they stop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from strom.errors import InvalidSetting
from strom.model.file_uri import file_uri
from strom.runtime.files import FolderLock
from strom.runtime.settings import Settings
from strom.runtime.tasks import Tasks
from strom.runtime.world import World
from strom.server.folder.folder import FORMAT_FILE
from strom.server.links.inner_link import LOOPBACK, new_secret
from strom.server.process.addresses import Addresses
from strom.server.process.cluster_parts import lock_place
from strom.server.process.coordinator_node import CLUSTER_FACTOR, REPLICATION_FACTOR
from strom.server.process.leashed import LeashedProcess
from strom.server.process.listeners import endpoints, tablet_endpoints

STANDBY_FROM = 3
"""With at least this many tablet servers there is a second coordinator."""
PYTHON = (sys.executable, "-X", "faulthandler", "-m")
QUICK_JAVA = ("--java-option=-XX:TieredStopAtLevel=1", "--java-option=-Xshare:auto")

logger = logging.getLogger(__name__)


class LocalCluster:
    """All processes of the cluster."""

    def __init__(
        self,
        settings: Settings,
        world: World,
        *,
        servers: int,
        replicas: int | None,
        flags: Mapping[str, object],
        config: Path | None,
        host: str | None = None,
        port: int | None = None,
    ) -> None:
        """``flags`` and ``config``: what ``settings`` were read from; every process gets them too."""
        self._settings = settings
        self._world = world
        self._count = servers
        self._factor = _factor(settings, servers, replicas)
        self._given = [f"{name}={value}" for name, value in flags.items()]
        self._config = () if config is None else ("--config", str(config))
        self._endpoints = endpoints(settings, host=host, port=port)
        self._folder = os.path.abspath(settings["data.dir"])
        self._scratch = tempfile.TemporaryDirectory(prefix="strom-up-")
        self._tasks = Tasks()
        self._lock: FolderLock | None = None
        self._zookeeper: LeashedProcess | None = None
        self._roles: list[LeashedProcess] = []
        self.over = asyncio.Event()
        """Never: it ends only when it is stopped."""

    async def start(self) -> Addresses:
        """Start everything; if a part fails, undo what was begun."""
        try:
            return await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> Addresses:
        self._take_folder()
        files = self._world.files
        command = self._zookeeper_command(await self._port())
        zookeeper = self._zookeeper = LeashedProcess(files, "ZooKeeper", command)
        await zookeeper.start(self._tasks)
        coordinators = 2 if self._count >= STANDBY_FROM else 1
        names = [f"coordinator-{number}" for number in range(1, coordinators + 1)]
        names += [f"tablet-{number}" for number in range(self._count)]
        self._roles = [
            LeashedProcess(files, name, self._role_command(name, index, zookeeper.ready["address"]))
            for index, name in enumerate(names)
        ]
        first, *others = self._roles
        await first.start(self._tasks)
        await asyncio.gather(*(one.start(self._tasks) for one in others))
        ready = first.ready
        pids = [os.getpid(), zookeeper.ready["pid"], *(one.ready["pid"] for one in self._roles)]
        return Addresses(self._folder, ready["addresses"], ready["http_address"], pids)

    def describe(self) -> str:
        """What runs, for people."""
        copies = "1 copy" if self._factor == 1 else f"{self._factor} copies"
        return f"{self._count} tablet servers, {copies} of every bucket"

    def _take_folder(self) -> None:
        files = self._world.files
        if files.exists(f"{self._folder}/{FORMAT_FILE}"):
            raise InvalidSetting(
                f"{self._folder} holds the data of one machine (strom up without --servers); choose another folder "
                "with --data",
                folder=self._folder,
            )
        self._lock = lock_place(files, self._folder, "cluster")
        secret = f"{self._folder}/secret"
        if not files.exists(secret):
            files.write_whole(secret, new_secret(self._world.randomness).encode())

    async def _port(self) -> int:
        """A port that is free now."""
        listening = await self._world.network.listen(LOOPBACK, 0, asyncio.Protocol)
        port = listening.port
        listening.close()
        await listening.wait_closed()
        return port

    # --- commands --------------------------------------------------------------------------------------------------

    def _zookeeper_command(self, port: int) -> Sequence[str]:
        return [
            *(*PYTHON, "strom.server.zookeeper.run", "--data", f"{self._folder}/zookeeper"),
            *("--port", str(port), *QUICK_JAVA, "--leash", "--ready-file", self._ready_file("zookeeper")),
        ]

    def _role_command(self, name: str, index: int, zookeeper: str) -> Sequence[str]:
        role, _, number = name.rpartition("-")
        listening = self._endpoints if index == 0 else tablet_endpoints(self._endpoints, index - 1)
        settings: dict[str, object] = {
            "metadata.store": "zookeeper",
            "zookeeper.addresses": zookeeper,
            "cluster.secret-file": f"{self._folder}/secret",
            "cluster.listener": f"{LOOPBACK}:0",
            "cluster.advertised-listener": "",
            "data.dir": f"{self._folder}/{name}",
            "data.dirs": f"{self._folder}/{name}",
            "bind.listeners": _listeners((one.name, one.host, one.port) for one in listening),
            "advertised.listeners": _listeners(
                (one.name, one.advertised_host, one.advertised_port) for one in listening if one.port
            ),
            REPLICATION_FACTOR: self._factor,
            "lake.warehouse": self._settings["lake.warehouse"] or file_uri(f"{self._folder}/lake"),
        }
        if index:
            settings["http.port"] = -1
        if role == "tablet":
            settings["server.id"] = number
        pairs = [*self._given, *(f"{key}={value}" for key, value in settings.items())]
        return [
            *(*PYTHON, "strom.server.process.roles", role, *self._config, "--leash"),
            *("--ready-file", self._ready_file(name)),
            *(part for pair in pairs for part in ("--set", pair)),
        ]

    def _ready_file(self, name: str) -> str:
        return f"{self._scratch.name}/{name}.json"

    # --- the end ---------------------------------------------------------------------------------------------------

    async def stop(self) -> bool:
        """Stop all: the coordinators first, so that nobody elects new leaders for servers that stop too."""
        coordinators = [one for one in self._roles if one.name.startswith("coordinator")]
        tablets = [one for one in self._roles if one not in coordinators]
        codes: list[int] = []
        for some in (coordinators, tablets, [] if self._zookeeper is None else [self._zookeeper]):
            codes += await asyncio.gather(*(one.stop() for one in some))
        await self._tasks.close()
        self._scratch.cleanup()
        if self._lock is not None:
            self._lock.release()
        return not any(codes[: len(self._roles)])


def _listeners(found: Iterable[tuple[str, str, int]]) -> str:
    return ",".join(f"{name}://{_bracketed(host)}:{port}" for name, host, port in found)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _factor(settings: Settings, servers: int, replicas: int | None) -> int:
    if replicas is None:
        said = settings.source(REPLICATION_FACTOR) != "default"
        return int(settings[REPLICATION_FACTOR]) if said else min(CLUSTER_FACTOR, servers)
    if replicas > servers:
        raise InvalidSetting(f"{replicas} copies need as many tablet servers, and --servers is {servers}")
    return replicas
