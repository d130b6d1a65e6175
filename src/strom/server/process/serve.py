"""A whole server on this machine: one process with every role, or a coordinator and its tablet servers.

The order of a start: take the folder, open the metadata, start the tablet servers, open the ports, register the
addresses in the metadata, then report ready. A stop is the same backwards; it is clean when every log was closed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Protocol

from strom._version import __version__
from strom.coordinator import commands
from strom.coordinator.catalog import ServerEntry
from strom.coordinator.coordinator import Coordinator
from strom.errors import InvalidSetting, LeaderNotAvailable
from strom.metadata.embedded import EmbeddedStore
from strom.metadata.store import MetadataStore
from strom.protocol.api_keys import APPLY_STAGES, HOLD_BUCKETS
from strom.protocol.messages.inner import HoldBucketsRequest, HoldBucketsResponse
from strom.protocol.messages.stages import ApplyStagesRequest, ApplyStagesResponse
from strom.rpc.listener import Listener
from strom.runtime.files import Files
from strom.runtime.metrics import Metrics
from strom.runtime.settings import Settings
from strom.runtime.tasks import Tasks
from strom.runtime.units import counted
from strom.runtime.world import World
from strom.server.calls.backups import Backups
from strom.server.calls.catalog.reads import catalog_reads
from strom.server.calls.catalog.state import StateCalls
from strom.server.calls.dispatch import CallGroup, Dispatch
from strom.server.calls.inner import CoordinatorCalls
from strom.server.folder.bucket_folders import BucketFolders
from strom.server.folder.folder import DataFolder, StillHeld, buckets_path, open_folder
from strom.server.folder.home_lake import bring_home
from strom.server.folder.lake_config import lake_config
from strom.server.folder.metadata_place import check_place
from strom.server.links.inner_link import InnerLink, new_secret, open_inner_listener
from strom.server.process.addresses import Addresses, advertised
from strom.server.process.coordinator_node import CoordinatorNode, limits_of
from strom.server.process.listeners import check_http, endpoints, tablet_endpoints
from strom.server.process.ports import COORDINATOR_TYPE, Ports
from strom.server.process.remote_status import RemoteStatus
from strom.server.process.supervisor import StartLine, Supervisor, TabletProcess
from strom.server.process.tablet_node import TabletNode
from strom.server.process.web_port import WebPort
from strom.server.status.status import TabletServers
from strom.server.tablets.catalog_view import CatalogView
from strom.server.tablets.hold import ENGAGE_S_MAX
from strom.server.web.site import Site

COORDINATOR_ID = 0
LOCK_WAIT_S = 10.0
LOCK_PAUSE_S = 0.05
APPLY_TIMEOUT_S = 600.0
"""Publishing a large stage takes long; if the tablet server dies, the call fails at once."""

logger = logging.getLogger(__name__)


class OpenedStore(MetadataStore, Protocol):
    """A metadata store, with a notice if something was unusual when it was opened."""

    notice: str | None


class OpenStore(Protocol):
    """How a server opens its metadata; ``EmbeddedStore.open``, except in simulations."""

    def __call__(self, files: Files, folder: str, *, owner: bool, create: bool) -> OpenedStore:
        """Open the store of a data folder."""


class RunningServer:
    """A server from start to stop, in this process and its children."""

    def __init__(
        self,
        settings: Settings,
        world: World,
        *,
        host: str | None = None,
        port: int | None = None,
        open_store: OpenStore = EmbeddedStore.open,
    ) -> None:
        self._settings = settings
        self._world = world
        self._open_store = open_store
        self._endpoints = endpoints(settings, host=host, port=port)
        check_http(settings)
        if settings["metadata.store"] != "embedded":
            raise InvalidSetting(
                "strom up keeps its metadata in the data folder; a cluster on ZooKeeper is started with strom "
                "coordinator and strom tablet",
                setting="metadata.store",
            )
        self._path = os.path.abspath(settings["data.dir"])
        self._count: int = settings["tablet-server.count"]
        self._metrics = Metrics()
        self._tasks = Tasks()
        self._tablet: TabletNode | None = None
        self._supervisor: Supervisor | None = None
        self._inner: Listener | None = None
        self._folder: DataFolder | None = None
        self._store: OpenedStore | None = None
        self._coordinator: CoordinatorNode | None = None
        self._backups: Backups | None = None
        self._web = WebPort(world, settings)
        # A port that both roles share reports no type: the peer's client would take it for the wrong one.
        self._ports = Ports(
            world, settings, self._metrics, server_type=None if self._count == 1 else COORDINATOR_TYPE
        )
        self.over = asyncio.Event()
        """Never: it ends only when it is stopped."""
        self.addresses: Addresses

    @property
    def tablet(self) -> TabletNode | None:
        """The tablet server in this process, if there is one."""
        return self._tablet

    async def start(self) -> Addresses:
        """Start everything; if a part fails, undo what was begun."""
        try:
            await self._start()
        except BaseException:
            await self.stop(cleanly=False)
            raise
        return self.addresses

    async def _start(self) -> None:
        folder = self._folder = await self._open_folder()
        check_place(self._world.files, folder.path, in_cluster=False)
        lake = lake_config(self._settings, folder.path, folder.owner)
        await self._world.offload.run(bring_home, self._world.files, lake)
        store = self._store = self._open_store(
            self._world.files, folder.path, owner=True, create=folder.empty
        )
        if store.notice:
            logger.warning("%s", store.notice)
        coordinator = Coordinator(store, limits_of(self._settings))
        coordinator.perform(commands.bootstrap, now_ms=self._world.clock.now_ms())
        view = CatalogView(coordinator, self._world.offload, alone=self._count == 1)
        self._coordinator = CoordinatorNode(
            self._world, self._settings, folder.path, lake, view, self._apply_stages
        )
        if isinstance(store, EmbeddedStore):
            self._backups = Backups(self._world, folder, lake, store, self._hold)
            await self._world.offload.run(self._backups.sweep)
        if self._count == 1:
            await self._start_alone(coordinator, view)
        else:
            await self._start_several(coordinator, view)
        self._coordinator.start()
        self._tasks.spawn(self._sweep(view), "sweep dropped buckets")
        self._tell_start(view, folder)

    def _tell_start(self, view: CatalogView, folder: DataFolder) -> None:
        reads = "each bucket reads what came after its last checkpoint as it is opened"
        if folder.empty:
            before = "at the last stop there was nothing yet"
        elif folder.copied:
            before = f"the folder is a copy, or was restored, so {reads}"
        elif not folder.stopped_cleanly:
            before = f"at the last stop it was killed, so {reads}"
        else:  # a bucket that was not touched since a kill is recovered when it is touched
            before = "at the last stop every log in use was closed"
        logger.info(
            "started version %s on %s, %s, %s; %s",
            __version__,
            folder.path,
            counted(len(list(view.catalog.all_tables())), "table"),
            "1 process"
            if len(self.addresses.processes) == 1
            else f"{len(self.addresses.processes)} processes",
            before,
        )

    async def _open_folder(self) -> DataFolder:
        """Take the folder; wait a little for tablet servers that have just lost their supervisor."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LOCK_WAIT_S
        while True:
            try:
                return open_folder(self._world.files, self._path, self._world.randomness)
            except StillHeld:
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(LOCK_PAUSE_S)

    async def _apply_stages(self, server_id: int, request: ApplyStagesRequest) -> ApplyStagesResponse:
        """Have a tablet server publish what was decided."""
        if self._tablet is not None:
            return await self._tablet.stages.apply(request)
        if self._supervisor is None:
            raise LeaderNotAvailable(f"tablet server {server_id} is not running yet")
        link = self._supervisor.process(server_id).link
        return await link.call(APPLY_STAGES, request, timeout_s=APPLY_TIMEOUT_S)

    # --- one process -----------------------------------------------------------------------------------

    async def _start_alone(self, coordinator: Coordinator, view: CatalogView) -> None:
        assert self._folder is not None
        assert self._coordinator is not None
        tablet = self._tablet = TabletNode(
            self._world,
            self._settings,
            BucketFolders(self._world.files, [self._folder.path]),
            0,
            view,
            self._metrics,
            self._ports.budget,
            owner=self._folder.owner,
        )
        tablet.expiry.ask = self._coordinator.sinks.expire
        site = await self._open_ports(view, lambda: [tablet.status], tablet.groups)
        listeners = advertised(self._ports.endpoints)
        coordinator.perform(commands.register_coordinator, ServerEntry(COORDINATOR_ID, listeners))
        coordinator.perform(commands.register_server, ServerEntry(0, listeners))
        coordinator.perform(commands.reassign_leaders, [0])
        tablet.start()
        await self._web.open(site)
        self._announce([os.getpid()])

    async def _hold(self, on: bool) -> bool:
        """Pause all tablet servers, or let them go on; whether all were paused until then."""
        if self._tablet is not None:
            return await self._tablet.tablets.hold.switch(on)
        assert self._supervisor is not None
        request = HoldBucketsRequest(on=on)
        answers = await asyncio.gather(
            *(
                process.link.call(HOLD_BUCKETS, request, timeout_s=2 * ENGAGE_S_MAX)
                for process in self._supervisor.processes
            ),
            return_exceptions=True,
        )
        for one in answers:
            if on and isinstance(one, BaseException):
                raise one
        return all(isinstance(one, HoldBucketsResponse) and one.held for one in answers)

    # --- several processes -----------------------------------------------------------------------------

    async def _start_several(self, coordinator: Coordinator, view: CatalogView) -> None:
        assert self._folder is not None
        ids = list(range(self._count))
        coordinator.perform(commands.reassign_leaders, ids)
        supervisor = self._supervisor = await self._supervise(ids, view)
        servers = [RemoteStatus(one.server_id, one.link, view, one.facts) for one in supervisor.processes]
        site = await self._open_ports(view, lambda: servers, ())
        coordinator.perform(
            commands.register_coordinator, ServerEntry(COORDINATOR_ID, advertised(self._ports.endpoints))
        )
        await supervisor.start()
        for process in supervisor.processes:
            await self._register(view, process.server_id, process.ports)
        self._tasks.spawn(view.follow(), "follow the metadata")
        await self._web.open(site)
        self._announce([os.getpid(), *(one.process_id for one in supervisor.processes if one.process_id)])

    async def _supervise(self, ids: Sequence[int], view: CatalogView) -> Supervisor:
        """The tablet servers of this machine, not started yet; their calls are taken from now on."""
        assert self._coordinator is not None
        secret = new_secret(self._world.randomness)
        control = CoordinatorCalls(
            self._coordinator.sinks,
            registered=lambda request: supervisor.process(request.server_id).registered(request),
            failed=lambda request: supervisor.process(request.server_id).failed(request),
        )
        inner = self._inner = await open_inner_listener(self._world, secret, [control])
        supervisor = Supervisor(
            [
                TabletProcess(
                    server_id,
                    {**self._start_line(server_id), "secret": secret, "coordinator_port": inner.port},
                    InnerLink(self._world, secret, f"tablet server {server_id}"),
                    lambda server_id, ports: self._came_up(view, server_id, ports),
                )
                for server_id in ids
            ]
        )
        return supervisor

    def _start_line(self, server_id: int) -> StartLine:
        assert self._folder is not None
        beside = tablet_endpoints(self._endpoints, server_id)
        return {
            "server_id": server_id,
            "folder": self._folder.path,
            "owner": str(self._folder.owner),
            "settings": dict(self._settings),
            "endpoints": [asdict(one) for one in beside],
            "ports": [one.port for one in beside],
        }

    def _came_up(self, view: CatalogView, server_id: int, ports: Sequence[int]) -> None:
        self._tasks.spawn(self._register(view, server_id, ports), f"register tablet server {server_id}")

    async def _register(self, view: CatalogView, server_id: int, ports: Sequence[int]) -> None:
        beside = tablet_endpoints(self._endpoints, server_id)
        bound = [one.bound(port) for one, port in zip(beside, ports, strict=True)]
        await view.perform(commands.register_server, ServerEntry(server_id, advertised(bound)))
        if self._coordinator is not None:
            self._coordinator.rollout.server_returned(server_id)

    # --- both ------------------------------------------------------------------------------------------

    async def _open_ports(
        self,
        view: CatalogView,
        servers: TabletServers,
        groups: Sequence[CallGroup],
    ) -> Site:
        assert self._folder is not None
        assert self._coordinator is not None
        site = Site(
            view,
            servers,
            self._metrics,
            self._world.clock,
            self._world.offload,
            folder=self._folder.path,
            connections=lambda: self._ports.connections,
            shared=self._count == 1,
        )
        state = StateCalls(view, servers, site.describe)
        self._coordinator.ask(servers)
        backups = () if self._backups is None else (self._backups,)
        reads = catalog_reads(view)
        dispatch = Dispatch((*groups, *reads, *self._coordinator.groups, *backups, state))
        await self._ports.open(self._endpoints, dispatch)
        return site

    def _announce(self, processes: Sequence[int]) -> None:
        assert self._folder is not None
        listeners = {one.name: one.address for one in self._ports.endpoints}
        self.addresses = Addresses(self._folder.path, listeners, self._web.address, tuple(processes))
        self._folder.announce({"process": os.getpid(), "address": self.addresses.address})

    async def _sweep(self, view: CatalogView) -> None:
        """Remove the folders of dropped tables that were left when the server stopped."""
        assert self._folder is not None
        files, root = self._world.files, buckets_path(self._folder.path)
        for table in await self._world.offload.run(files.list, root):
            if not table.isdecimal():
                continue
            if view.catalog.table_by_id(int(table)) is None:
                await self._world.offload.run(files.remove_tree, f"{root}/{table}")
                continue
            for partition in await self._world.offload.run(files.list, f"{root}/{table}"):
                if partition.isdecimal() and view.catalog.partition_by_id(int(partition)) is None:
                    await self._world.offload.run(files.remove_tree, f"{root}/{table}/{partition}")

    async def stop(self, *, cleanly: bool = True) -> bool:
        """Stop everything, in order; returns whether every log was closed."""
        timeout_s = self._settings["shutdown.timeout"] / 1000
        await self._web.close()
        if self._tablet is not None:
            self._tablet.finish_waiting()
        await self._ports.close(timeout_s=timeout_s)
        await self._tasks.close()
        if self._backups is not None:
            await self._backups.close()
        if self._coordinator is not None:
            await self._coordinator.close()
        if self._supervisor is not None:
            cleanly = await self._supervisor.stop(timeout_s) and cleanly
        if self._inner is not None:
            await self._inner.close(timeout_s)
        if self._tablet is not None:
            cleanly = await self._tablet.close() and cleanly
        if self._store is not None:
            self._store.close()
        if self._folder is not None:
            self._folder.close(cleanly=cleanly)
            logger.info("stopped, %s", "every log closed" if cleanly else "not every log could be closed")
        return cleanly
