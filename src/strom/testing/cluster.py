"""A whole cluster in one event loop: the real server, real clients, a network, a disk and metadata in memory.

The server is the real :class:`strom.server.process.serve.RunningServer`, the clients are :mod:`strom.aio`. Time is the
loop's, randomness comes from a seed, nothing runs in a thread. So a seed determines the history and reproduces it.

    cluster = SimulatedCluster(SeededRandomness(7), observer, settings={"durability": "group"})
    await cluster.start()
    db = await cluster.connect("reader")
    cluster.kill(power_loss=True)         what was not synced is gone
    await cluster.start()                 the same disk and metadata, another process
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Mapping

from strom.aio.database import Database
from strom.aio.session import Session
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.options import ClientOptions
from strom.errors import StromError
from strom.metadata.memory import MemoryStore
from strom.model.table import DEFAULT_DATABASE
from strom.runtime.files import Files
from strom.runtime.objects.object_place import ObjectPlace
from strom.runtime.objects.object_store import Objects
from strom.runtime.random import Randomness
from strom.runtime.settings import load
from strom.runtime.world import World
from strom.server.background import disk_space
from strom.server.process.serve import RunningServer
from strom.server.process.tablet_node import TabletNode
from strom.testing.clock import START_MS, LoopClock
from strom.testing.disk import ForgettingDisk, Survival
from strom.testing.mortal import (
    Killed,
    Life,
    MortalFiles,
    MortalNetwork,
    MortalStore,
    Observer,
    SlowOffload,
    current_life,
    watch_tasks,
)
from strom.testing.network import MemoryNetwork

HOST = "server"
PORT = 9123
ADDRESS = f"{HOST}:{PORT}"
FOLDER = "/data"
SETTINGS = {
    "data.dir": FOLDER,
    "bind.listeners": f"CLIENT://127.0.0.1:{PORT}",
    "advertised.listeners": f"CLIENT://{HOST}:{PORT}",
    "http.port": "-1",
}


class SimulatedCluster:
    """One server on one disk, through all its lives, and its clients."""

    def __init__(
        self,
        randomness: Randomness,
        observer: Observer,
        *,
        settings: Mapping[str, str],
        network: MemoryNetwork | None = None,
        offload_ms_max: int = 10,
        objects: Objects | None = None,
    ) -> None:
        """``objects``: what stands behind ``remote.data.dir``, through all lives; None: what that names."""
        self._loop = asyncio.get_running_loop()
        watch_tasks(self._loop)
        self.randomness = randomness
        self.network = network or MemoryNetwork(delay_s=0.0002, jitter_s=0.004, randomness=randomness)
        self.disk = ForgettingDisk(record=False)
        self.store = MemoryStore()
        self.settings = dict(settings)
        self.died = asyncio.Event()
        self.on_crash: list[Callable[[bool], None]] = []
        """Called for every ``kill``, with whether power was lost too."""
        self.lives = 0
        self.clock_shift_ms = 0
        """How wrong the clock of the next life is."""
        self._observer = observer
        self._offload_ms_max = offload_ms_max
        self._objects = objects
        self._life: Life | None = None
        self._server: RunningServer | None = None
        self._survival: bool | Survival = True
        self.clients: list[Life] = []

    @property
    def alive(self) -> bool:
        """Whether the server's process runs (it may be starting)."""
        return self._life is not None and not self._life.dead

    @property
    def node(self) -> TabletNode:
        """The tablet server of the life that runs."""
        assert self._server is not None
        assert self._server.tablet is not None
        return self._server.tablet

    # --- the server ------------------------------------------------------------------------------------------

    async def start(self) -> bool:
        """Start the server; False if it was killed meanwhile. Raises what prevented the start."""
        assert not self.alive
        self.lives += 1
        life = self._life = Life(HOST)
        life.on_death.append(self._crashed)
        self.died = asyncio.Event()
        self._survival = True
        world = self.world_of(life, start_ms=START_MS + self.clock_shift_ms)

        def open_store(files: Files, folder: str, *, owner: bool, create: bool) -> MortalStore:
            return MortalStore(life, self.store)

        server = RunningServer(load(None, {}, {**SETTINGS, **self.settings}), world, open_store=open_store)
        starting = life.spawn(server.start(), "start")
        await asyncio.wait([starting])
        if life.dead:
            return False
        if starting.exception() is not None:
            life.die()
            raise starting.exception()  # type: ignore[misc]
        self._server = server
        return True

    async def stop(self) -> bool:
        """Stop the server cleanly; False if it was killed meanwhile or a log could not be closed."""
        life, server = self._life, self._server
        assert life is not None
        assert server is not None
        stopping = life.spawn(server.stop(), "stop")
        await asyncio.wait([stopping])
        if life.dead:
            return False
        cleanly = stopping.result()
        life.die()
        return cleanly

    def kill(self, *, power_loss: bool | Survival = False) -> None:
        """End the server's process now. ``power_loss``: the disk forgets what was not synced, or a part of it."""
        if self._life is not None and not self._life.dead:
            self._survival = _survival(power_loss)
            self._life.die()

    def kill_after(self, changes: int, *, power_loss: bool | Survival = False) -> None:
        """Like ``kill``, in place of the server's next change but ``changes`` to disk or metadata."""
        if self._life is not None:
            self._survival = _survival(power_loss)
            self._life.die_after(changes)

    def _crashed(self) -> None:
        assert self._life is not None
        # After a failed sync the machine is restarted, not only the server: what the system's cache shows may be
        # on no disk, and no program can tell.
        survival = False if self._survival is True and self._life.sync_failed else self._survival
        power_lost = survival is not True
        self.disk.crash(survival)
        for callback in self.on_crash:
            callback(power_lost)
        self.died.set()

    # --- clients ---------------------------------------------------------------------------------------------

    def client(self, name: str) -> Life:
        """A process for a client."""
        life = Life(name)
        self.clients.append(life)
        return life

    async def connect(self, life: Life, options: ClientOptions | None = None) -> Database:
        """Connect from a client's process, however long it takes."""
        while True:
            try:
                cluster = await Cluster.connect(self.world_of(life), ADDRESS, options=options)
                return Database(Session(cluster), DEFAULT_DATABASE)
            except StromError:
                await asyncio.sleep(0.1)

    async def close(self) -> None:
        """End all processes and wait until nothing of them runs."""
        for life in (*self.clients, self._life):
            if life is not None:
                life.die()
        for _ in range(100):
            await asyncio.sleep(0)

    def world_of(self, life: Life, *, start_ms: int = START_MS) -> World:
        """The world of a process."""
        return World(
            LoopClock(self._loop.time, start_ms),
            self.randomness,
            MortalFiles(life, self.disk, self._observer),
            MortalNetwork(life, self.network),
            SlowOffload(self.randomness, delay_ms_max=self._offload_ms_max),
            objects=None if self._objects is None else self._behind,
        )

    def _behind(self, place: ObjectPlace) -> Objects:
        assert self._objects is not None
        return self._objects


def _survival(power_loss: bool | Survival) -> bool | Survival:
    """What the disk keeps, as the disk says it: True for everything."""
    return not power_loss if isinstance(power_loss, bool) else power_loss


FULL_DISK_TOLD_BY = disk_space.__name__
"""An error to those who run the machine, and right of the server to say: the world is full, nothing in it is broken."""


class Alarm(logging.Handler):
    """Reports what should never happen in a living process: crashed tasks, failed callbacks, logged errors."""

    def __init__(self, loop: asyncio.AbstractEventLoop, report: Callable[[str], None]) -> None:
        super().__init__(logging.ERROR)
        self._loop = loop
        self._report = report

    def __enter__(self) -> Alarm:
        self._loop.set_exception_handler(self._failed)
        logging.getLogger("strom").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("strom").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == FULL_DISK_TOLD_BY:
            return
        error = record.exc_info[1] if record.exc_info else None
        self._tell(f"{record.getMessage()}: {error!r}", error)

    def _failed(self, _loop: asyncio.AbstractEventLoop, facts: dict[str, object]) -> None:
        error = facts.get("exception")
        self._tell(f"{facts.get('message')}: {error!r}", error)

    def _tell(self, text: str, error: object) -> None:
        life = current_life()
        if isinstance(error, Killed) or (life is not None and life.dead):
            return  # ignore dead processes
        if isinstance(error, BaseException):
            text += "\n" + "".join(traceback.format_exception(error))
        self._report(text)
