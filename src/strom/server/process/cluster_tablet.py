"""``strom tablet``: one tablet server of a cluster.

The order of a start: open the metadata, or wait for them (metadata_wait.py), make sure that no other process is this
server, take the data folders, open the ports, register. A stop: have other leaders elected, close the ports, close
every log, put everything on the disks, take the announcement back.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Sequence
from functools import partial

from strom._version import __version__
from strom.coordinator.catalog import ServerEntry
from strom.coordinator.coordinator import Coordinator
from strom.errors import InvalidSetting, ServerStopping, StromError
from strom.model.bucket import BucketId
from strom.protocol.api_keys import EXPIRE_STAGES
from strom.protocol.messages.inner import LeaveRequest
from strom.replication.registration import Registration
from strom.runtime.settings import Settings
from strom.runtime.tasks import Tasks
from strom.runtime.world import World
from strom.server.folder.data_folders import DataFolders
from strom.server.links.inner_link import INNER_LISTENER
from strom.server.links.server_links import ServerLinks
from strom.server.membership.hearing import HearingCalls
from strom.server.membership.heartbeats import HeartbeatCalls
from strom.server.membership.leaving import leave
from strom.server.membership.metadata_contact import MetadataContact, contact_concerns
from strom.server.membership.registration import ServerRegistration, wait_for_number
from strom.server.process.addresses import Addresses, advertised
from strom.server.process.cluster_parts import ClusterPlace, ClusterStore, OpenClusterStore, cluster_lake
from strom.server.process.coordinator_node import limits_of
from strom.server.process.metadata_wait import NO_CLUSTER_YET, MetadataWait
from strom.server.process.tablet_server import TabletDoors, TabletServer
from strom.server.process.web_port import WebPort
from strom.server.replicas.copy_home import CopyHome
from strom.server.status.concern import Concern
from strom.server.tablets.catalog_view import CatalogView
from strom.server.web.site import Site

INCARNATIONS = 2**62
STORE_AGAIN_S = 0.5
LAST_ANSWER_S = 5.0

logger = logging.getLogger(__name__)


class ClusterTablet:
    """One tablet server from start to stop."""

    def __init__(
        self,
        settings: Settings,
        world: World,
        *,
        secret: str,
        open_store: OpenClusterStore,
        host: str | None = None,
        port: int | None = None,
    ) -> None:
        self._settings = settings
        self._world = world
        self._secret = secret
        self._open_store = open_store
        self._place = ClusterPlace.of(settings, host=host, port=port)
        self.server_id: int = settings["server.id"]
        if self.server_id < 0:
            raise InvalidSetting(
                "server.id is not set: give every tablet server of the cluster a number of its own, from 0 up",
                setting="server.id",
            )
        own = [f"{settings['data.dir']}/tablet-{self.server_id}"]
        self._paths = [os.path.abspath(one) for one in settings["data.dirs"] or own]
        self.incarnation = 1 + world.randomness.below(INCARNATIONS)
        """Of this process: no other process of this server ever has it."""
        self._tasks = Tasks()
        self._store: ClusterStore | None = None
        self._folders: DataFolders | None = None
        self._links: ServerLinks | None = None
        self._view: CatalogView | None = None
        self._registration: ServerRegistration | None = None
        self._server: TabletServer | None = None
        self._contact: MetadataContact | None = None
        self._web = WebPort(world, settings)
        self.over = asyncio.Event()
        """Set when this process has to end, because another one took its place."""
        self.addresses: Addresses
        self.site: Site
        """Its pages."""

    async def start(self) -> Addresses:
        """Start everything; if a part fails, undo what was begun."""
        try:
            await self._start()
        except BaseException:
            await self.stop(cleanly=False)
            raise
        return self.addresses

    async def _start(self) -> None:
        world, settings = self._world, self._settings
        wait = MetadataWait(self._web, f"tablet server {self.server_id}")
        opening = partial(world.offload.run, self._open_store, False)
        store = self._store = await wait.until_answered(opening, NO_CLUSTER_YET)
        reading = partial(world.offload.run, Coordinator, store, limits_of(settings), self.server_id)
        coordinator = await wait.until_answered(reading)
        view = self._view = CatalogView(coordinator, world.offload, alone=False)
        links = self._links = ServerLinks(world, self._secret, view)
        await wait_for_number(world, self._secret, view, self.server_id)
        folders = self._folders = await world.offload.run(self._open_folders, view, store.cluster_id)
        buckets, disk_of = folders.bucket_folders(world.files, self._expected_disks)
        server = self._server = TabletServer(
            world,
            settings,
            view,
            TabletDoors(self._place.endpoints, self._place.inner, self._secret),
            server_id=self.server_id,
            folders=buckets,
            lake=cluster_lake(settings, store.cluster_id),
            home=CopyHome(self.server_id, self.incarnation, disk_of),
            ask=links.ask,
        )
        server.node.expiry.ask = lambda request: links.active.call(EXPIRE_STAGES, request)
        await server.open(
            self._asked_to_stop, HeartbeatCalls(self.incarnation, cut_from=self._cut_from), HearingCalls(view)
        )
        await wait.until_answered(lambda: self._register(store, view, folders, server))
        self._watch_contact(store)
        self.site = self._site(view, server, folders)
        await self._web.open(self.site)
        shown = {one.name: one.address for one in server.endpoints}
        self.addresses = Addresses(folders.roots[0], shown, self._web.address, (os.getpid(),))
        folders.announce({"process": os.getpid(), "address": self.addresses.address})
        logger.info(
            "started version %s as tablet server %s of cluster %s, on %s",
            __version__,
            self.server_id,
            store.cluster_id,
            ", ".join(folders.roots),
        )

    def _site(self, view: CatalogView, server: TabletServer, folders: DataFolders) -> Site:
        """The pages of this server alone."""
        return Site(
            view,
            lambda: [server.node.status],
            server.metrics,
            self._world.clock,
            self._world.offload,
            folder=", ".join(folders.roots),
            connections=lambda: server.connections,
            shared=True,
            own=self._own_concerns,
            role=lambda: f"tablet server {self.server_id}",
        )

    def _own_concerns(self) -> Sequence[Concern]:
        return () if self._contact is None else contact_concerns(self._contact, "this tablet server")

    def _cut_from(self) -> Sequence[int]:
        replicas = None if self._server is None else self._server.node.replicas
        return () if replicas is None else replicas.cut_from()

    def _open_folders(self, view: CatalogView, cluster_id: str) -> DataFolders:
        before = view.catalog.registrations.get(self.server_id)
        return DataFolders.open(
            self._world.files,
            self._paths,
            cluster_id=cluster_id,
            clock=self._world.clock,
            randomness=self._world.randomness,
            registered=None if before is None else [one.disk for one in before.disks],
        )

    def _expected_disks(self, bucket: BucketId) -> Collection[str]:
        """Where the entry of a bucket says that the copy of this server is."""
        assert self._view is not None
        entry = self._view.catalog.replicas.get(bucket)
        member = None if entry is None else entry.member_of(self.server_id)
        return () if member is None else (member.identity.disk,)

    async def _register(
        self, store: ClusterStore, view: CatalogView, folders: DataFolders, server: TabletServer
    ) -> None:
        rack = self._settings["server.rack"]
        inner = self._place.inner_at(server.inner_port)
        entry = ServerEntry(
            self.server_id,
            {**advertised(server.endpoints), INNER_LISTENER: inner},
            Registration(self.server_id, self.incarnation, folders.disks, rack),
        )
        registration = ServerRegistration(view, store, self._world.offload, self._was_replaced)
        self._registration = registration
        await registration.register(entry)

    def _was_replaced(self) -> None:
        logger.error(
            "another process registered as tablet server %s: this one ends. Two servers have the same server.id, or "
            "this one was taken for dead",
            self.server_id,
        )
        self.over.set()

    # --- contact to the metadata -----------------------------------------------------------------------------------

    def _watch_contact(self, store: ClusterStore) -> None:
        timeout_s = self._settings["replica.session.timeout"] / 1000
        contact = self._contact = MetadataContact(lambda: store.silent_s, timeout_s)
        assert self._server is not None
        self._server.node.contact = contact
        contact.follow(self._server.metrics)
        changed = asyncio.Event()
        contact.on_change.append(changed.set)
        self._tasks.spawn(contact.run(), "watch the contact to the metadata")
        self._tasks.spawn(self._serve_in_contact(contact, changed), "serve while there is contact")

    async def _serve_in_contact(self, contact: MetadataContact, changed: asyncio.Event) -> None:
        assert self._server is not None
        while True:
            await changed.wait()
            changed.clear()
            try:
                if contact.lost:
                    await self._server.shut_out()
                else:
                    await self._server.let_in()
            except StromError as error:
                logger.error("clients cannot be let in again: %s; trying again", error.message)
                asyncio.get_running_loop().call_later(STORE_AGAIN_S, changed.set)

    # --- the end ---------------------------------------------------------------------------------------------------

    async def _asked_to_stop(self, timeout_s: float) -> bool:
        raise ServerStopping("a tablet server of a cluster is stopped where it runs")

    async def stop(self, *, cleanly: bool = True) -> bool:
        """Have the buckets led by others, then stop everything, in order; returns whether every log was closed."""
        timeout_s = self._settings["shutdown.timeout"] / 1000
        await self._web.close()
        if cleanly and not self.over.is_set():
            await self._leave(timeout_s)
        await self._tasks.close()
        if self._server is not None:
            cleanly = await self._server.stop(timeout_s) and cleanly
            await self._server.close_inner(LAST_ANSWER_S)
        if self._folders is not None:
            await self._world.offload.run(lambda: self._close_folders(cleanly))
        if self._links is not None:
            self._links.close()
        if self._store is not None:
            await self._world.offload.run(self._store.close)  # the announcement ends with it
        if self._folders is not None:
            logger.info("stopped, %s", "every log closed" if cleanly else "not every log could be closed")
        return cleanly

    def _close_folders(self, cleanly: bool) -> None:
        assert self._folders is not None
        self._folders.close(cleanly=cleanly)

    async def _leave(self, within_s: float) -> None:
        if self._links is not None and self._view is not None and self._registration is not None:
            request = LeaveRequest(server_id=self.server_id, incarnation=self.incarnation)
            await leave(self._links, self._view, request, within_s=within_s)
