"""A cluster of machines in one event loop: the real coordinators and tablet servers, a network, disks and metadata in
memory.

    machines = SimulatedMachines(SeededRandomness(7), settings={})
    await machines.start_coordinator("c1")
    await machines.start_tablet("t1", 1)
    machines.kill("t1")                         its disk keeps what was written, or (power_loss) what was synced
    await machines.restart("t1")                as it was started before
    machines.freeze("t1"), machines.wake("t1")  its process stands still for a while, as after SIGSTOP
    machines.replace_disk("t1")                 once it is killed: an empty one
    machines["t1"].store.cut()                  it does not reach the metadata any more, and nobody notices
    machines.weather.lag_ms = 100               see ``strom.testing.remote_store``
    machines.network.stall("c1", "t1")          see ``strom.testing.network``

Each process is a host of its own. Time is the loop's and nothing runs in a thread, so a seed determines the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from functools import cache

from strom.aio.database import Database
from strom.aio.session import Session
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.options import ClientOptions
from strom.errors import Disconnected, ForeignMetadata
from strom.metadata.memory import MemoryStore
from strom.model.table import DEFAULT_DATABASE
from strom.runtime.clock import Uptime
from strom.runtime.random import Randomness
from strom.runtime.settings import Settings, load
from strom.runtime.world import World
from strom.server.process.cluster_coordinator import ClusterCoordinator
from strom.server.process.cluster_tablet import ClusterTablet
from strom.testing.clock import START_MS, LoopClock
from strom.testing.disk import ForgettingDisk, Survival
from strom.testing.loop import VirtualLoop
from strom.testing.mortal import (
    Life,
    MortalFiles,
    MortalNetwork,
    Observer,
    SlowOffload,
    life_of,
    watch_tasks,
)
from strom.testing.network import MemoryNetwork
from strom.testing.remote_store import RemoteStore, StoreWeather

PORT = 9123
INNER_PORT = 9300
SECRET = "the secret of a simulated cluster"
SESSION_S = 6.0
BACK_S = 0.02
"""How long a process that stood still takes to reach the metadata again."""


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


@cache
def _settings_of(name: str, more: frozenset[tuple[str, str]]) -> Settings:
    """Of a server; read once, though it is started often, in many histories."""
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
            **dict(sorted(more)),
        },
    )


@dataclass
class SimulatedMachine:
    """One host: its disk stays, its process comes and goes."""

    name: str
    disk: ForgettingDisk
    boots: int = 1
    life: Life | None = None
    server: ClusterCoordinator | ClusterTablet | None = None
    store: RemoteStore | None = None
    kind: type[ClusterCoordinator] | type[ClusterTablet] = ClusterTablet
    settings: Mapping[str, str] = field(default_factory=dict)
    """As it was started last."""
    frozen: Callable[[], None] | None = None
    """What lets its process go on."""

    survival: bool | Survival = True
    """What the disk keeps when the process ends next; True: everything."""

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.life is not None and not self.life.dead

    def crash(self) -> None:
        """Its process has ended, or power was lost while there was none."""
        if self.life is not None and self.life.sync_failed:
            # What the system's cache shows may be on no disk: only a restart of the machine ends that.
            self.survival = False if self.survival is True else self.survival
        self.disk.crash(self.survival)
        self.boots += 0 if self.survival is True else 1


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
        self.weather = StoreWeather(randomness, session_s=SESSION_S)
        self.settings = dict(settings or {})
        self._observer = observer or _Nobody()
        self._machines: dict[str, SimulatedMachine] = {}
        self._clients: list[Life] = []

    def __iter__(self) -> Iterator[SimulatedMachine]:
        """The machines of servers."""
        return iter(self._machines.values())

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

    async def restart(self, name: str) -> None:
        """Start a process that has ended, as it was started before; raises what prevents it."""
        machine = self._machines[name]
        await self._start(name, machine.kind, machine.settings)

    async def _start(
        self,
        name: str,
        kind: type[ClusterCoordinator] | type[ClusterTablet],
        settings: Mapping[str, str],
    ) -> ClusterCoordinator | ClusterTablet:
        machine = self._machines.setdefault(name, SimulatedMachine(name, ForgettingDisk(record=False)))
        assert not machine.alive, f"{name} runs already"
        machine.kind, machine.settings = kind, settings
        life = machine.life = Life(name)
        machine.server = None  # of the process before
        machine.survival = True
        life.on_death.append(machine.crash)
        machine.store = RemoteStore(life, self.store, self.weather)

        def open_store(create: bool) -> RemoteStore:
            assert machine.store is not None
            if self.weather.away:
                raise Disconnected("nobody answers for the metadata")
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
        return _settings_of(name, frozenset({**self.settings, **more}.items()))

    async def stop(self, name: str) -> bool:
        """Stop its process in order; whether the stop was clean. It ends also if nobody waits for that any more."""
        machine = self._machines[name]
        life = machine.life
        assert life is not None
        assert machine.server is not None
        stopping = life.spawn(machine.server.stop(), "stop")
        killed = False

        def end(_: object) -> None:
            nonlocal killed
            killed = life.dead
            life.die()

        stopping.add_done_callback(end, context=Context())
        await asyncio.wait([stopping])
        return False if killed else stopping.result()

    def kill(self, name: str, *, power_loss: bool | Survival = False) -> None:
        """End its process now. ``power_loss``: the machine starts anew, and its disk forgets what was not synced, or a
        part of it."""
        machine = self._machines[name]
        machine.survival = not power_loss if isinstance(power_loss, bool) else power_loss
        if machine.alive:
            assert machine.life is not None
            machine.life.die()
        else:
            machine.crash()
        self.wake(name)

    def kill_after(self, name: str, changes: int, *, power_loss: bool | Survival = False) -> None:
        """Like ``kill``, in place of its next change but ``changes`` to disk or metadata."""
        machine = self._machines[name]
        machine.survival = not power_loss if isinstance(power_loss, bool) else power_loss
        if machine.alive:
            assert machine.life is not None
            machine.life.die_after(changes)

    def replace_disk(self, name: str) -> None:
        """Give a machine whose process has ended an empty disk."""
        machine = self._machines[name]
        assert not machine.alive, f"{name} runs"
        machine.disk = ForgettingDisk(record=False)
        machine.boots += 1

    def freeze(self, name: str) -> None:
        """Let its process stand still, until ``wake``. It is still connected, and does not answer."""
        machine = self._machines[name]
        if not machine.alive or machine.frozen is not None:
            return
        assert isinstance(self._loop, VirtualLoop)
        assert machine.store is not None
        machine.store.cut()
        self.network.freeze(name)
        life = machine.life
        machine.frozen = self._loop.hold(lambda context: life_of(context) is life)

    def wake(self, name: str) -> None:
        """Let it go on, as if no time had passed."""
        machine = self._machines[name]
        if machine.frozen is None:
            return
        machine.frozen()
        machine.frozen = None
        self.network.wake(name)
        if machine.alive and machine.store is not None:
            self._loop.call_later(BACK_S, machine.store.heal, context=Context())

    # --- clients -------------------------------------------------------------------------------------------------

    def client(self, name: str) -> Life:
        """A process for a client, on a machine of its own."""
        life = Life(name)
        self._clients.append(life)
        return life

    def client_world(self, name: str) -> World:
        """The world of a client on a machine of its own."""
        return self._client_world(self.client(name))

    def _client_world(self, life: Life) -> World:
        return self._world(life, SimulatedMachine(life.name, ForgettingDisk(record=False)))

    async def connect(
        self, name: str | Life, addresses: str, options: ClientOptions | None = None
    ) -> Database:
        """A client on a machine of its own, or in a process that there is."""
        life = self.client(name) if isinstance(name, str) else name
        cluster = await Cluster.connect(self._client_world(life), addresses, options=options)
        return Database(Session(cluster), DEFAULT_DATABASE)

    async def close(self) -> None:
        """End all processes and wait until nothing of them runs."""
        self.network.heal()
        for name in self._machines:
            self.wake(name)
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
