"""A cluster of machines in one event loop: the real coordinators and tablet servers, a network, disks and metadata in
memory.

    machines = SimulatedMachines(SeededRandomness(7), settings={})
    await machines.start_coordinator("c1")
    await machines.start_tablet("t1", 1)
    machines.kill("t1")                         its disk keeps what was written, or (power_loss) what was synced
    machines["t1"].store.cut()                  it does not reach the metadata any more, and nobody notices
    machines.network.stall("c1", "t1")          see ``strom.testing.network``

Each process is a host of its own. Time is the loop's and nothing runs in a thread, so a seed determines the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from strom.aio.database import Database
from strom.aio.session import Session
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.options import ClientOptions
from strom.errors import Disconnected, ForeignMetadata
from strom.metadata.changes import Requirement, Update
from strom.metadata.memory import MemoryStore
from strom.metadata.store import Announcement, Snapshot, Watcher
from strom.model.table import DEFAULT_DATABASE
from strom.runtime.clock import Uptime
from strom.runtime.random import Randomness
from strom.runtime.settings import Settings, load
from strom.runtime.world import World
from strom.server.process.cluster_coordinator import ClusterCoordinator
from strom.server.process.cluster_tablet import ClusterTablet
from strom.testing.clock import START_MS, LoopClock
from strom.testing.disk import ForgettingDisk
from strom.testing.mortal import (
    Life,
    MortalFiles,
    MortalNetwork,
    MortalStore,
    Observer,
    SlowOffload,
    watch_tasks,
)
from strom.testing.network import MemoryNetwork

PORT = 9123
INNER_PORT = 9300
SECRET = "the secret of a simulated cluster"
CLUSTER_ID = "5" * 32
SESSION_S = 6.0
"""How long a process that is gone, or cut off, stays announced."""


class RemoteStore(MortalStore):
    """The metadata of a process on another machine: may be out of reach, and announces it for a while after its end."""

    cluster_id = CLUSTER_ID

    def __init__(self, life: Life, store: MemoryStore) -> None:
        super().__init__(life, store)
        self._loop = asyncio.get_running_loop()
        life.on_death.remove(self._store.close)
        life.on_death.append(self._end_later)
        self._cut_since: float | None = None
        self._announced: dict[str, tuple[bytes, Announcement]] = {}
        self.hard_of_hearing = False
        """Whether it hears of the commits of others only when it is read: as if its connection were slow."""
        self._heard = 0

    def _end_later(self) -> None:
        self._loop.call_later(SESSION_S, self._store.close)

    @property
    def silent_s(self) -> float:
        """For how long it is out of reach."""
        return 0.0 if self._cut_since is None else self._loop.time() - self._cut_since

    def cut(self) -> None:
        """Do not reach it any more, until ``heal``. What was announced ends after the time of a session."""
        if self._cut_since is None:
            self._cut_since = self._loop.time()
            self._loop.call_later(SESSION_S, self._expire, self._cut_since)

    def heal(self) -> None:
        """Reach it again. What was announced stands again, unless somebody else took its place."""
        self._cut_since = None
        there = self._store.read().entries
        for key, (value, _) in list(self._announced.items()):
            if key not in there:
                self._announced[key] = (value, self._store.announce(key, value))

    def _expire(self, since: float) -> None:
        if self._cut_since == since:
            for _, announcement in self._announced.values():
                announcement.close()

    def _check_reach(self) -> None:
        if self._cut_since is not None:
            raise Disconnected("the metadata cannot be reached: try again")

    def read(self, prefix: str = "") -> Snapshot:
        self._check_reach()
        self.reads += 1
        snapshot = super().read(prefix)
        self._heard = snapshot.version
        return snapshot

    reads = 0
    """How often it was read."""

    def commit(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> int:
        self._check_reach()
        try:
            return super().commit(requirements, updates)
        finally:
            self._heard = self._store.read().version

    def announce(self, key: str, value: bytes) -> Announcement:
        self._check_reach()
        announcement = super().announce(key, value)
        self._announced[key] = (value, announcement)
        return announcement

    def changed_since(self, version: int) -> bool:
        if self._cut_since is not None or (self.hard_of_hearing and self._heard <= version):
            return False
        return super().changed_since(version)

    def watch(self, callback: Watcher) -> Callable[[], None]:
        return super().watch(lambda version: None if self.hard_of_hearing else callback(version))


class _Boots:
    """The clock of a machine, which knows when it was started last."""

    def __init__(self, clock: LoopClock, boot: str) -> None:
        self._clock = clock
        self._boot = boot

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def uptime(self) -> Uptime:
        return self._clock.uptime()._replace(boot=self._boot)


class _Nobody:
    """Observes no disk."""

    def appended(self, path: str, position: int, content: bytes) -> None: ...

    def truncated(self, path: str, size: int) -> None: ...

    def replaced(self, path: str, content: bytes) -> None: ...

    def removed(self, path: str) -> None: ...


@dataclass
class SimulatedMachine:
    """One host: its disk stays, its process comes and goes."""

    name: str
    disk: ForgettingDisk
    boots: int = 1
    life: Life | None = None
    server: ClusterCoordinator | ClusterTablet | None = None
    store: RemoteStore | None = None

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.life is not None and not self.life.dead


class SimulatedMachines:
    """All machines, their network and their metadata."""

    def __init__(
        self,
        randomness: Randomness,
        *,
        settings: Mapping[str, str] | None = None,
        network: MemoryNetwork | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        watch_tasks(self._loop)
        self.randomness = randomness
        self.network = network or MemoryNetwork(delay_s=0.0002, jitter_s=0.002, randomness=randomness)
        self.store = MemoryStore()
        self.settings = dict(settings or {})
        self._observer = observer or _Nobody()
        self._machines: dict[str, SimulatedMachine] = {}
        self._clients: list[Life] = []

    def __getitem__(self, name: str) -> SimulatedMachine:
        """The machine of this name."""
        return self._machines[name]

    # --- servers -------------------------------------------------------------------------------------------------

    async def start_coordinator(self, name: str, **settings: str) -> ClusterCoordinator:
        """Start a coordinator on this machine; raises what prevents it."""
        server = await self._start(name, ClusterCoordinator, settings)
        assert isinstance(server, ClusterCoordinator)
        return server

    async def start_tablet(self, name: str, server_id: int, **settings: str) -> ClusterTablet:
        """Start a tablet server on this machine; raises what prevents it."""
        server = await self._start(name, ClusterTablet, {"server.id": str(server_id), **settings})
        assert isinstance(server, ClusterTablet)
        return server

    async def _start(
        self,
        name: str,
        kind: type[ClusterCoordinator] | type[ClusterTablet],
        settings: Mapping[str, str],
    ) -> ClusterCoordinator | ClusterTablet:
        machine = self._machines.setdefault(name, SimulatedMachine(name, ForgettingDisk(record=False)))
        assert not machine.alive, f"{name} runs already"
        life = machine.life = Life(name)
        machine.store = RemoteStore(life, self.store)

        def open_store(create: bool) -> RemoteStore:
            assert machine.store is not None
            if not create and not self.store.read().entries:
                raise ForeignMetadata("no coordinator has made a cluster yet")
            return machine.store

        world = self._world(life, machine)
        with life.inside():
            server = kind(self._settings(name, settings), world, secret=SECRET, open_store=open_store)
        starting = life.spawn(server.start(), "start")
        await asyncio.wait([starting])
        if life.dead:
            raise Disconnected(f"{name} was killed while it started")
        if starting.exception() is not None:
            life.die()
            raise starting.exception()  # type: ignore[misc]
        machine.server = server
        return server

    def _settings(self, name: str, more: Mapping[str, str]) -> Settings:
        return load(
            None,
            {},
            {
                "metadata.store": "zookeeper",
                "bind.listeners": f"CLIENT://127.0.0.1:{PORT}",
                "advertised.listeners": f"CLIENT://{name}:{PORT}",
                "cluster.listener": f"127.0.0.1:{INNER_PORT}",
                "cluster.advertised-listener": f"{name}:{INNER_PORT}",
                "data.dir": "/data",
                "http.port": "-1",
                **self.settings,
                **more,
            },
        )

    async def stop(self, name: str) -> bool:
        """Stop its process in order; whether the stop was clean."""
        machine = self._machines[name]
        assert machine.life is not None
        assert machine.server is not None
        stopping = machine.life.spawn(machine.server.stop(), "stop")
        await asyncio.wait([stopping])
        cleanly = False if machine.life.dead else stopping.result()
        machine.life.die()
        return cleanly

    def kill(self, name: str, *, power_loss: bool = False) -> None:
        """End its process now. ``power_loss``: the machine starts anew, and its disk forgets what was not synced."""
        machine = self._machines[name]
        if machine.life is not None:
            machine.life.die()
        machine.disk.crash(keep_unsynced=not power_loss)
        if power_loss:
            machine.boots += 1

    # --- clients -------------------------------------------------------------------------------------------------

    def client_world(self, name: str) -> World:
        """The world of a client on a machine of its own."""
        life = Life(name)
        self._clients.append(life)
        return self._world(life, SimulatedMachine(name, ForgettingDisk(record=False)))

    async def connect(self, name: str, addresses: str, options: ClientOptions | None = None) -> Database:
        """A client on a machine of its own."""
        cluster = await Cluster.connect(self.client_world(name), addresses, options=options)
        return Database(Session(cluster), DEFAULT_DATABASE)

    async def close(self) -> None:
        """End all processes and wait until nothing of them runs."""
        self.network.heal()
        for life in (*self._clients, *(machine.life for machine in self._machines.values())):
            if life is not None:
                life.die()
        for _ in range(100):
            await asyncio.sleep(0)

    def _world(self, life: Life, machine: SimulatedMachine) -> World:
        clock = _Boots(LoopClock(self._loop.time, START_MS), f"{machine.name} {machine.boots}")
        return World(
            clock,
            self.randomness,
            MortalFiles(life, machine.disk, self._observer),
            MortalNetwork(life, self.network),
            SlowOffload(self.randomness, delay_ms_max=2),
        )
