"""A tablet server with ports of its own: one for clients, one for the other servers.

The same under ``strom up --tablets N``, where a supervisor starts it, and in a cluster, where ``strom tablet`` does.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from strom.coordinator.catalog import ListenerAddress
from strom.errors import PortInUse
from strom.model.lake.lake import LakeConfig
from strom.rpc.listener import Listener
from strom.runtime.metrics import Metrics
from strom.runtime.settings import Settings
from strom.runtime.world import World
from strom.server.calls.catalog.reads import catalog_reads
from strom.server.calls.catalog.state import StateCalls
from strom.server.calls.dispatch import CallGroup, Dispatch
from strom.server.calls.inner import Stop, TabletServerCalls
from strom.server.calls.lake.lake import LakeReads
from strom.server.folder.bucket_folders import BucketFolders
from strom.server.links.inner_link import LOOPBACK, open_inner_listener
from strom.server.process.listeners import Endpoint
from strom.server.process.ports import TABLET_TYPE, Ports
from strom.server.process.tablet_node import TabletNode
from strom.server.replicas.copy_home import CopyHome
from strom.server.replicas.replicas import AskServer
from strom.server.tablets.catalog_view import CatalogView

ON_LOOPBACK = ListenerAddress(LOOPBACK, 0)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TabletDoors:
    """Where a tablet server listens."""

    endpoints: Sequence[Endpoint]
    inner: ListenerAddress = ON_LOOPBACK
    secret: str = ""
    """That callers of the inner listener know."""
    any_port: bool = False
    """Take other ports where these are taken: clients learn the ports from the metadata."""


class TabletServer:
    """One tablet server, from opening its ports to closing its logs."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        view: CatalogView,
        doors: TabletDoors,
        *,
        server_id: int,
        folders: BucketFolders,
        lake: LakeConfig,
        home: CopyHome | None = None,
        ask: AskServer | None = None,
    ) -> None:
        """``home`` and ``ask``: see ``TabletNode``."""
        self._world, self._view, self._doors, self._lake = world, view, doors, lake
        self._server_id = server_id
        metrics = self.metrics = Metrics()
        self._ports = Ports(world, settings, metrics, server_type=TABLET_TYPE)
        self.node = TabletNode(
            world,
            settings,
            folders,
            server_id,
            view,
            metrics,
            self._ports.budget,
            home=home,
            ask=ask,
            owner=lake.owner,
        )
        self._state = StateCalls(view, lambda: [self.node.status], self.node.status.summary)
        self._inner: Listener | None = None

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The listeners for clients, with the ports that were taken."""
        return self._ports.endpoints

    @property
    def connections(self) -> int:
        """Connections of clients."""
        return self._ports.connections

    @property
    def inner_port(self) -> int:
        """Where the other servers call."""
        assert self._inner is not None
        return self._inner.port

    async def open(self, stop: Stop, *more: CallGroup) -> None:
        """Take calls of clients, then those of servers, ``more`` among them, and start the background work.

        ``stop`` ends this server when the coordinator says so.
        """
        lake = LakeReads(self._view, self._world.clock, self._lake)
        self._dispatch = Dispatch((*self.node.groups, *catalog_reads(self._view, lake, self._state)))
        await self._open_ports(self._dispatch)
        control = TabletServerCalls(self.node.tablets.hold, self.node.stages, self.node.status, stop)
        groups: Sequence[CallGroup] = (control, self._state, *self.node.inner_groups, *more)
        host, port = self._doors.inner
        self._inner = await open_inner_listener(self._world, self._doors.secret, groups, host=host, port=port)
        self.node.start()

    async def _open_ports(self, dispatch: Dispatch) -> None:
        try:
            await self._ports.open(self._doors.endpoints, dispatch)
        except PortInUse as error:
            if not self._doors.any_port:
                raise
            logger.warning("tablet server %s takes another port: %s", self._server_id, error.message)
            await self._ports.open([replace(one, port=0) for one in self._doors.endpoints], dispatch)

    async def shut_out(self) -> None:
        """Close the connections of clients, and the ports. They would wait for a server that may not answer them."""
        await self._ports.close(timeout_s=0)

    async def let_in(self) -> None:
        """Take calls of clients again, on the same ports."""
        if not self._ports.is_open:
            await self._ports.open(self._ports.endpoints, self._dispatch)

    async def stop(self, timeout_s: float) -> bool:
        """Let running calls of clients end, then close every log; returns whether all of them closed."""
        self.node.finish_waiting()
        await self._ports.close(timeout_s=timeout_s)
        return await self.node.close()

    async def close_inner(self, timeout_s: float) -> None:
        """Take no calls of other servers any more. Last: the answer to the stop still has to leave."""
        if self._inner is not None:
            await self._inner.close(timeout_s)
