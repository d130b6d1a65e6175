"""A cluster with several copies of each bucket, in one event loop: real tablet servers, coordinator and clients.

Each server has a disk, a host and a process of its own, which can be killed and started again; the metadata is one
store in memory that all of them share. Nobody watches over the servers unless the test does: it says who is believed
dead.

    cluster = ReplicatedCluster(SeededRandomness(7), servers=3, settings={"durability": "group"})
    await cluster.start()
    db = await cluster.connect(cluster.client("writer"))
    cluster.servers[1].kill()
    cluster.believe_dead(1)               elections, as a coordinator would decide them
    await cluster.servers[1].start()      the same disk, another process
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from strom.aio.database import Database
from strom.aio.session import Session
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.options import ClientOptions
from strom.coordinator import commands
from strom.coordinator.catalog import Catalog, ListenerAddress, ServerEntry
from strom.coordinator.coordinator import Coordinator
from strom.coordinator.limits import DecisionLimits
from strom.errors import Disconnected
from strom.metadata.changes import Requirement, Update
from strom.metadata.memory import MemoryStore
from strom.model.bucket import BucketId
from strom.model.lake.lake_owner import LakeOwner
from strom.model.table import DEFAULT_DATABASE
from strom.protocol.api_keys import APPLY_STAGES, EXPIRE_STAGES
from strom.protocol.messages.stages import ApplyStagesRequest, ApplyStagesResponse
from strom.replication.bucket_entry import BucketEntry
from strom.replication.registration import DataDisk, Registration
from strom.runtime.metrics import Metrics
from strom.runtime.objects.object_place import ObjectPlace
from strom.runtime.objects.object_store import Objects
from strom.runtime.random import Randomness
from strom.runtime.settings import load
from strom.runtime.world import World
from strom.server.calls.catalog.reads import catalog_reads
from strom.server.calls.dispatch import Dispatch
from strom.server.calls.inner import CoordinatorCalls, TabletServerCalls
from strom.server.folder.bucket_folders import BucketFolders
from strom.server.folder.lake_config import lake_config
from strom.server.links.inner_link import InnerLink, open_inner_listener
from strom.server.process.coordinator_node import CoordinatorNode
from strom.server.process.listeners import endpoints
from strom.server.process.ports import COORDINATOR_TYPE, TABLET_TYPE, Ports
from strom.server.process.tablet_node import TabletNode
from strom.server.replicas.copy_home import CopyHome
from strom.server.replicas.replicas import Replicas
from strom.server.tablets.catalog_view import CatalogView
from strom.tablet.tablet import Tablet
from strom.testing.clock import START_MS, LoopClock
from strom.testing.disk import ForgettingDisk, Survival
from strom.testing.mortal import Life, MortalFiles, MortalNetwork, MortalStore, SlowOffload, watch_tasks
from strom.testing.network import MemoryNetwork

CLIENT_PORT = 9123
INNER_PORT = 9223
INNER = "INNER"
CLIENT = "CLIENT"
FOLDER = "/data"
SECRET = "the secret that all servers of this cluster share"
COORDINATOR = "coordinator"
OWNER = LakeOwner("cluster", "incarnation")


class Unobserved:
    """Nobody looks at the disks."""

    def appended(self, path: str, position: int, content: bytes) -> None:
        """Bytes at the end of a file."""

    def truncated(self, path: str, size: int) -> None:
        """A file was truncated."""

    def replaced(self, path: str, content: bytes) -> None:
        """A file was written whole."""

    def removed(self, path: str) -> None:
        """A file is gone."""


class ReplicatedCluster:
    """Several tablet servers, one coordinator, one metadata store, and clients."""

    def __init__(
        self,
        randomness: Randomness,
        *,
        servers: int = 3,
        settings: Mapping[str, str] | None = None,
        network: MemoryNetwork | None = None,
        offload_ms_max: int = 2,
        objects: Objects | None = None,
    ) -> None:
        """``objects``: what stands behind ``remote.data.dir``."""
        self._objects = objects
        self._loop = asyncio.get_running_loop()
        watch_tasks(self._loop)
        self.randomness = randomness
        self.network = network or MemoryNetwork(delay_s=0.0002, jitter_s=0.001, randomness=randomness)
        self.store = MemoryStore()
        self.settings = load(
            None,
            {},
            {
                "data.dir": FOLDER,
                "bind.listeners": f"{CLIENT}://127.0.0.1:{CLIENT_PORT}",
                "http.port": "-1",
                **(settings or {}),
            },
        )
        self._offload_ms_max = offload_ms_max
        self.servers = {number: ReplicaServer(self, number) for number in range(servers)}
        self.coordinator = CoordinatorServer(self)
        self.clients: list[Life] = []

    def limits(self) -> DecisionLimits:
        """As a cluster has them."""
        return DecisionLimits(
            replication_factor_default=self.settings["default.replication.factor"],
            durability_default=self.settings["durability"],
            replicated=True,
        )

    async def start(self) -> None:
        """Start everything."""
        await self.coordinator.start()
        for server in self.servers.values():
            await server.start()

    async def close(self) -> None:
        """End all processes and wait until nothing of them runs."""
        lives = [server.life for server in self.servers.values()]
        for life in (*self.clients, *lives, self.coordinator.life):
            if life is not None:
                life.die()
        for _ in range(100):
            await asyncio.sleep(0)

    def world(self, life: Life, disk: ForgettingDisk) -> World:
        """The world as one process sees it."""
        return World(
            LoopClock(self._loop.time, START_MS),
            self.randomness,
            MortalFiles(life, disk, Unobserved()),
            MortalNetwork(life, self.network),
            SlowOffload(self.randomness, delay_ms_max=self._offload_ms_max),
            objects=None if self._objects is None else self._behind,
        )

    def _behind(self, place: ObjectPlace) -> Objects:
        assert self._objects is not None
        return self._objects

    # --- the metadata ----------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """What the metadata says now."""
        return Catalog.of(self.store.read(), self.limits())

    def entry(self, bucket: BucketId) -> BucketEntry:
        """The copies of a bucket."""
        found = self.catalog.replicas.get(bucket)
        assert found is not None
        return found

    def decide(self, command: Any, *arguments: Any, **named: Any) -> Any:
        """What a coordinator would do: plan and commit a command."""
        return Coordinator(self.store, self.limits()).perform(command, *arguments, **named)

    @property
    def alive(self) -> list[int]:
        """The servers whose processes run."""
        return [number for number, server in self.servers.items() if server.alive]

    def believe_dead(self, *dead: int, alive: Collection[int] | None = None) -> None:
        """Elect other leaders, and take the dead out of in-sync sets, as far as that is allowed."""
        living = set(self.alive if alive is None else alive) - set(dead)
        self.decide(commands.elect_leaders, dead, alive=living)
        self.decide(commands.drop_dead_members, dead, alive=living)

    # --- clients ---------------------------------------------------------------------------------------------

    def client(self, name: str) -> Life:
        """A process for a client."""
        life = Life(name)
        self.clients.append(life)
        return life

    async def connect(self, life: Life, options: ClientOptions | None = None) -> Database:
        """Connect from a client's process."""
        address = ",".join(f"{server.host}:{CLIENT_PORT}" for server in self.servers.values())
        world = self.world(life, ForgettingDisk(record=False))
        cluster = await Cluster.connect(world, address, options=options)
        return Database(Session(cluster), DEFAULT_DATABASE)


class ReplicaServer:
    """One tablet server on its disk, through all its lives."""

    def __init__(self, cluster: ReplicatedCluster, server_id: int) -> None:
        self._cluster = cluster
        self.server_id = server_id
        self.host = f"server{server_id}"
        self.disk = _new_disk()
        self.disk_id = f"disk{server_id}"
        self.lineage = 0
        self.blind = False
        """Whether it does not reach the metadata."""
        self.loses_answers = False
        """Whether what it commits happens, and it never hears of it; nor of anything else."""
        self.lives = 0
        self.life: Life | None = None
        self.node: TabletNode | None = None
        self._ports: Ports | None = None
        self._survival: bool | Survival = True

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.life is not None and not self.life.dead

    @property
    def replicas(self) -> Replicas:
        """Its copies."""
        assert self.node is not None
        assert self.node.replicas is not None
        return self.node.replicas

    def tablet(self, bucket: BucketId) -> Tablet:
        """Its copy of a bucket, which is open."""
        replica = self.replicas.find(bucket)
        assert replica is not None
        assert replica.slot.tablet is not None
        return replica.slot.tablet

    @property
    def incarnation(self) -> int:
        """Of its newest process: no other of the cluster has had it."""
        return self.lives * 1000 + self.server_id + 1

    async def start(self) -> None:
        """Start its process, and register it."""
        assert not self.alive
        self.lives += 1
        life = self.life = Life(self.host)
        self._survival = True
        life.on_death.append(lambda: self.disk.crash(self._survival))
        starting = life.spawn(self._serve(life), "start")
        await asyncio.wait([starting])
        if not life.dead:
            starting.result()

    def kill(self, *, power_loss: bool | Survival = False) -> None:
        """End its process now. ``power_loss``: the disk forgets what was not synced, or a part of it."""
        if self.life is not None and not self.life.dead:
            self._survival = not power_loss if isinstance(power_loss, bool) else power_loss
            if self._survival is not True:
                self.lineage += 1
            self.life.die()

    def replace_disk(self) -> None:
        """Another, empty disk, while it is dead."""
        assert not self.alive
        self.disk, self.lineage = _new_disk(), 0
        self.disk_id = f"{self.disk_id}+"

    async def _serve(self, life: Life) -> None:
        cluster = self._cluster
        world, settings, metrics = cluster.world(life, self.disk), cluster.settings, Metrics()
        coordinator = Coordinator(_SeenStore(life, cluster.store, self), cluster.limits(), self.server_id)
        view = CatalogView(coordinator, world.offload, alone=False)
        ports = self._ports = Ports(world, settings, metrics, server_type=TABLET_TYPE)
        links = _Links(world, view)
        disk = DataDisk(self.disk_id, self.lineage)
        home = CopyHome(self.server_id, self.incarnation, lambda bucket: disk)
        folders = BucketFolders(world.files, [FOLDER])
        node = self.node = TabletNode(
            world,
            settings,
            folders,
            self.server_id,
            view,
            metrics,
            ports.budget,
            home=home,
            ask=links.call,
            owner=OWNER,
        )
        node.expiry.ask = links.expire
        await ports.open(endpoints(settings), Dispatch((*node.groups, *catalog_reads(view))))
        control = TabletServerCalls(node.tablets.hold, node.stages, node.status, _no_stop)
        await open_inner_listener(world, SECRET, (control, *node.inner_groups), port=INNER_PORT)
        listeners = _listeners(self.host)
        registration = Registration(self.server_id, self.incarnation, (disk,))
        entry = ServerEntry(self.server_id, listeners, registration)
        await view.perform(commands.register_server, entry)
        node.start()


class _SeenStore(MortalStore):
    """The metadata as one server reaches it, or does not. What it did not see then, it sees when it looks again."""

    hears = False

    def __init__(self, life: Life, store: MemoryStore, server: ReplicaServer) -> None:
        super().__init__(life, store)
        self._server = server

    def commit(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> int:
        if self._server.blind:
            raise Disconnected("the metadata does not answer")
        version = super().commit(requirements, updates)
        if self._server.loses_answers:
            raise Disconnected("the answer of the metadata was lost")
        return version

    def changed_since(self, version: int) -> bool:
        unseen = self._server.blind or self._server.loses_answers
        return not unseen and super().changed_since(version)


class CoordinatorServer:
    """The coordinator: it creates tables and decides for sinks; elections are up to the test."""

    def __init__(self, cluster: ReplicatedCluster) -> None:
        self._cluster = cluster
        self.disk = _new_disk()
        self.life: Life | None = None
        self.node: CoordinatorNode | None = None

    async def start(self) -> None:
        """Start its process."""
        life = self.life = Life(COORDINATOR)
        await life.spawn(self._serve(life), "start")

    async def _serve(self, life: Life) -> None:
        cluster = self._cluster
        world, settings = cluster.world(life, self.disk), cluster.settings
        coordinator = Coordinator(MortalStore(life, cluster.store), cluster.limits())
        coordinator.perform(commands.bootstrap, now_ms=world.clock.now_ms())
        view = CatalogView(coordinator, world.offload, alone=False)
        links = _Links(world, view)
        lake = lake_config(settings, FOLDER, OWNER)
        node = self.node = CoordinatorNode(world, settings, FOLDER, lake, view, links.apply)
        ports = Ports(world, settings, Metrics(), server_type=COORDINATOR_TYPE)
        await ports.open(endpoints(settings), Dispatch((*node.groups, *catalog_reads(view))))
        control = CoordinatorCalls(node.sinks, lambda _: None, lambda _: None)
        await open_inner_listener(world, SECRET, (control,), port=INNER_PORT)
        entry = ServerEntry(0, _listeners(COORDINATOR))
        await view.perform(commands.register_coordinator, entry)
        life.spawn(view.follow(), "follow the metadata")
        node.start()


class _Links:
    """Calls to the inner listeners of others, found in the catalog."""

    def __init__(self, world: World, view: CatalogView) -> None:
        self._world = world
        self._view = view
        self._links: dict[tuple[int, object], InnerLink] = {}

    async def call(self, server_id: int, api: Any, request: Any, timeout_s: float) -> Any:
        """The answer of a tablet server."""
        entry = self._view.catalog.servers.get(server_id)
        if entry is None:
            raise Disconnected(f"tablet server {server_id} is not known")
        return await self._link(server_id, entry, api).call(api, request, timeout_s=timeout_s)

    async def apply(self, server_id: int, request: ApplyStagesRequest) -> ApplyStagesResponse:
        """Have a tablet server publish what was decided."""
        response: ApplyStagesResponse = await self.call(server_id, APPLY_STAGES, request, 10.0)
        return response

    async def expire(self, request: Any) -> Any:
        """Ask the coordinator which stages may go."""
        entry = self._view.catalog.coordinator
        if entry is None:
            raise Disconnected("there is no coordinator")
        return await self._link(-1, entry, None).call(EXPIRE_STAGES, request, timeout_s=10.0)

    def _link(self, server_id: int, entry: ServerEntry, use: object) -> InnerLink:
        address = entry.listeners[INNER]
        link = self._links.get((server_id, use))
        if link is None:
            name = f"tablet server {server_id}"
            link = self._links[server_id, use] = InnerLink(self._world, SECRET, name, address)
        return link


def _new_disk() -> ForgettingDisk:
    disk = ForgettingDisk(record=False)
    disk.make_folder(FOLDER)
    disk.sync_folder("/")
    return disk


def _listeners(host: str) -> dict[str, ListenerAddress]:
    return {CLIENT: ListenerAddress(host, CLIENT_PORT), INNER: ListenerAddress(host, INNER_PORT)}


async def _no_stop(timeout_s: float) -> bool:
    return False
