"""``strom coordinator``: one coordinator of a cluster, active or standing by.

Every coordinator follows the metadata, answers reads, and asks all servers whether they are there. One of them is the
active one and has a ``CoordinatorNode`` for the time of its term: it changes tables, publishes what sinks decide, and
elects leaders. The others pass such calls on to it, and one of them takes over when it is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from strom._version import __version__
from strom.coordinator import commands, keys
from strom.coordinator.catalog import Catalog, ListenerAddress
from strom.coordinator.coordinator import Coordinator
from strom.coordinator.entries import CoordinatorEntry, encode_coordinator
from strom.errors import StromError
from strom.metadata.store import Announcement
from strom.model.lake.lake import LakeConfig
from strom.protocol.api_keys import APPLY_STAGES
from strom.protocol.messages.stages import ApplyStagesRequest, ApplyStagesResponse
from strom.rpc.listener import Listener
from strom.runtime.files import FolderLock
from strom.runtime.metrics import Metrics
from strom.runtime.settings import Settings
from strom.runtime.tasks import Tasks
from strom.runtime.world import World
from strom.server.calls.catalog.reads import catalog_reads
from strom.server.calls.catalog.state import StateCalls
from strom.server.calls.dispatch import Dispatch
from strom.server.calls.inner import ActiveDuty, ActiveDutyCalls
from strom.server.calls.lake.lake import LakeReads
from strom.server.links.inner_link import INNER_LISTENER, open_inner_listener
from strom.server.links.server_links import ServerLinks
from strom.server.membership.candidacy import Candidacy
from strom.server.membership.cluster_duties import ClusterDuties
from strom.server.membership.forwarding import ActiveCalls, ForwardCalls
from strom.server.membership.hearing import Hearing, HearingCalls
from strom.server.membership.heartbeats import HeartbeatCalls
from strom.server.membership.metadata_contact import MetadataContact, contact_concerns
from strom.server.membership.server_watch import ServerWatch
from strom.server.process.addresses import Addresses, advertised
from strom.server.process.cluster_parts import (
    ClusterPlace,
    ClusterStore,
    OpenClusterStore,
    cluster_lake,
    lock_place,
)
from strom.server.process.coordinator_node import CoordinatorNode, limits_of
from strom.server.process.metadata_wait import MetadataWait
from strom.server.process.ports import COORDINATOR_TYPE, Ports
from strom.server.process.remote_status import RemoteStatus
from strom.server.process.web_port import WebPort
from strom.server.status.cluster_facts import cluster_facts
from strom.server.status.cluster_metrics import ClusterGauges
from strom.server.status.concern import Concern
from strom.server.status.status import TabletServerStatus
from strom.server.tablets.catalog_view import CatalogView, TermView
from strom.server.web.site import Site

APPLY_TIMEOUT_S = 600.0
"""Publishing a large stage takes long; if the tablet server dies, the call fails at once."""
NAME_BYTES = 8
LAST_CALLS_S = 0.1
"""How long one that has left still tells those who pass calls on to it that it has."""

logger = logging.getLogger(__name__)


class ClusterCoordinator:
    """One coordinator from start to stop."""

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
        self._folder = f"{os.path.abspath(settings['data.dir'])}/coordinator"
        self.name = world.randomness.token(NAME_BYTES).hex()
        """Of this process among the coordinators."""
        self._metrics = Metrics()
        self._gauges = ClusterGauges(self._metrics, lambda: self.active)
        self._ports = Ports(world, settings, self._metrics, server_type=COORDINATOR_TYPE)
        self._web = WebPort(world, settings)
        self._duty = ActiveDutyCalls()
        self._tasks = Tasks()
        self._lock: FolderLock | None = None
        self._store: ClusterStore | None = None
        self._inner: Listener | None = None
        self._announced: Announcement | None = None
        self._links: ServerLinks | None = None
        self._watch: ServerWatch | None = None
        self._contact: MetadataContact | None = None
        self._candidacy: Candidacy | None = None
        self._node: CoordinatorNode | None = None
        self._duties: ClusterDuties | None = None
        self.over = asyncio.Event()
        """Never: it ends only when it is stopped."""
        self.addresses: Addresses
        self.site: Site
        """Its pages."""

    @property
    def active(self) -> bool:
        """Whether this is the active coordinator, as far as it knows."""
        return self._node is not None

    async def start(self) -> Addresses:
        """Start everything; if a part fails, undo what was begun."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise
        return self.addresses

    async def _start(self) -> None:
        self._lock = lock_place(self._world.files, self._folder, "coordinator")
        wait = MetadataWait(self._web, "coordinator")
        run = self._world.offload.run
        store = self._store = await wait.until_answered(partial(run, self._open_store, True))
        reading = partial(run, Coordinator, store, limits_of(self._settings))
        coordinator = await wait.until_answered(reading)
        view = CatalogView(coordinator, self._world.offload, alone=False)
        links = self._links = ServerLinks(self._world, self._secret, view)
        self._lake = cluster_lake(self._settings, store.cluster_id)
        self._calls = ActiveCalls(links, LakeReads(view, self._world.clock, self._lake))
        site = self.site = await self._open_ports(view, links, store.cluster_id)
        listeners = await self._open_inner(view)
        self._announced = await wait.until_answered(lambda: self._announce(store, listeners))
        self._stand(store, view, links, listeners)
        await self._web.open(site)
        shown = {one.name: one.address for one in self._ports.endpoints}
        self.addresses = Addresses(self._folder, shown, self._web.address, (os.getpid(),))
        logger.info("started version %s as a coordinator of cluster %s", __version__, store.cluster_id)

    _calls: ActiveCalls
    _lake: LakeConfig

    def _alive(self) -> frozenset[int]:
        """The tablet servers that answer."""
        return frozenset() if self._watch is None else self._watch.alive

    async def _open_ports(self, view: CatalogView, links: ServerLinks, cluster_id: str) -> Site:
        def servers() -> Sequence[TabletServerStatus]:
            alive = self._alive()
            return [
                RemoteStatus(one, links.to(one), view, gone=one not in alive, now_ms=self._world.clock.now_ms)
                for one in sorted(view.catalog.servers)
            ]

        self._servers = servers
        site = Site(
            view,
            servers,
            self._metrics,
            self._world.clock,
            self._world.offload,
            folder=self._folder,
            connections=lambda: self._ports.connections,
            shared=False,
            cluster=lambda catalog: self._facts(catalog, cluster_id),
            own=self._own_concerns,
            role=lambda: "active coordinator" if self.active else "coordinator that stands by",
        )
        state = StateCalls(view, servers, site.describe)
        dispatch = Dispatch((*catalog_reads(view, state), self._calls))
        await self._ports.open(self._place.endpoints, dispatch)
        return site

    def _facts(self, catalog: Catalog, cluster_id: str) -> Callable[[], dict[str, Any]]:
        """Who is there is asked here, on the loop; the rest may take a while, and is done anywhere."""
        alive, gone = self._alive(), {} if self._watch is None else self._watch.gone

        def find() -> dict[str, Any]:
            facts = cluster_facts(catalog, cluster_id, alive, gone)
            self._gauges.take(facts)
            return facts

        return find

    def _own_concerns(self) -> Sequence[Concern]:
        return () if self._contact is None else contact_concerns(self._contact, "this coordinator")

    async def _open_inner(self, view: CatalogView) -> dict[str, ListenerAddress]:
        """Take calls of servers; returns all addresses of this coordinator."""
        groups = (HeartbeatCalls(0, self.name), HearingCalls(view), ForwardCalls(self._calls), self._duty)
        host, port = self._place.inner
        self._inner = await open_inner_listener(self._world, self._secret, groups, host=host, port=port)
        inner = self._place.inner_at(self._inner.port)
        return {**advertised(self._ports.endpoints), INNER_LISTENER: inner}

    async def _announce(self, store: ClusterStore, listeners: dict[str, ListenerAddress]) -> Announcement:
        entry = CoordinatorEntry(self.name, 0, listeners)
        key = keys.alive_coordinator(self.name)
        return await self._world.offload.run(store.announce, key, encode_coordinator(entry))

    def _stand(
        self,
        store: ClusterStore,
        view: CatalogView,
        links: ServerLinks,
        listeners: dict[str, ListenerAddress],
    ) -> None:
        """Watch the cluster, and stand for being the active coordinator."""
        settings = self._settings
        contact = MetadataContact(lambda: store.silent_s, settings["replica.session.timeout"] / 1000)
        contact.follow(self._metrics)
        self._contact = contact
        watch = self._watch = ServerWatch(
            view,
            links,
            self.name,
            heartbeat_s=settings["replica.heartbeat"] / 1000,
            suspect_after_s=settings["replica.suspect-after"] / 1000,
        )
        candidacy = self._candidacy = Candidacy(
            view,
            CoordinatorEntry(self.name, 0, listeners),
            contact,
            is_silent=watch.is_silent,
            begin=self._begin,
            end=self._end,
            spread=Hearing(view, links, self.name, self._alive).spread,
        )
        watch.on_active = candidacy.wake
        self._tasks.spawn(view.follow(), "follow the metadata")
        self._tasks.spawn(contact.run(), "watch the contact to the metadata")
        self._tasks.spawn(watch.run(), "watch the servers")
        self._tasks.spawn(candidacy.run(), "stand for being the active coordinator")

    # --- a term ----------------------------------------------------------------------------------------------------

    async def _begin(self, view: TermView) -> None:
        """This is the active coordinator from now on."""
        assert self._watch is not None
        assert self._links is not None
        await view.perform(commands.bootstrap, now_ms=self._world.clock.now_ms())
        node = self._node = CoordinatorNode(
            self._world, self._settings, self._folder, self._lake, view, self._apply_stages
        )
        node.ask(self._servers)
        duties = self._duties = ClusterDuties(
            self._world, self._settings, view, self._watch, node.rollout, self._links
        )
        self._duty.duty = ActiveDuty(node.sinks, duties.leave)
        self._calls.begin((*node.groups, *duties.groups))
        duties.start()
        node.start()

    async def _end(self) -> None:
        """It is not any longer. At once: what is under way cannot be committed any more."""
        self._calls.end()
        self._duty.duty = None
        duties, self._duties = self._duties, None
        node, self._node = self._node, None
        if duties is not None:
            await duties.close()
        if node is not None:
            await node.close()

    async def _apply_stages(self, server_id: int, request: ApplyStagesRequest) -> ApplyStagesResponse:
        """Have a tablet server publish what was decided."""
        assert self._links is not None
        return await self._links.to(server_id).call(APPLY_STAGES, request, timeout_s=APPLY_TIMEOUT_S)

    # --- the end ---------------------------------------------------------------------------------------------------

    async def stop(self) -> bool:
        """Leave the place to another coordinator, then stop everything, in order."""
        timeout_s = self._settings["shutdown.timeout"] / 1000
        await self._web.close()
        await self._retire()
        await self._ports.close(timeout_s=timeout_s)
        if self._inner is not None:
            await asyncio.sleep(LAST_CALLS_S)
            await self._inner.close(timeout_s)
        await self._tasks.close()
        if self._candidacy is not None:
            await self._end()
        if self._watch is not None:
            await self._watch.close()
        if self._links is not None:
            self._links.close()
        if self._store is not None:
            await self._world.offload.run(self._close_store)
        if self._lock is not None:
            self._lock.release()
            logger.info("stopped")
        return True

    async def _retire(self) -> None:
        if self._candidacy is None:
            return
        try:
            await self._candidacy.retire()
        except StromError as error:
            logger.warning("others take over when they notice that this coordinator is gone: %s", error)

    def _close_store(self) -> None:
        assert self._store is not None
        self._store.close()  # and with it the announcement
