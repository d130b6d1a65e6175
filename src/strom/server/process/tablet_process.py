"""A tablet server as a process of its own; the supervisor starts it: ``python -m strom.server.process.tablet_process``.

The first line of standard input describes the server. Standard input is also the leash: when it ends, the supervisor
is gone and so are we, at once, because nothing may write to the folder any more once another server could.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from dataclasses import replace
from typing import Any

from strom.coordinator.coordinator import Coordinator
from strom.errors import PortInUse, StromError
from strom.metadata.embedded import EmbeddedStore
from strom.model.lake.lake_owner import LakeOwner
from strom.protocol.api_keys import EXPIRE_STAGES, REGISTER_SERVER, REPORT_FAILED_START
from strom.protocol.messages.inner import RegisterServerRequest, ReportFailedStartRequest
from strom.runtime.loops import run
from strom.runtime.metrics import Metrics
from strom.runtime.settings import Settings
from strom.runtime.world import World
from strom.server.calls.catalog.databases import DatabaseReads
from strom.server.calls.catalog.metadata import MetadataCalls
from strom.server.calls.catalog.partitions import PartitionReads
from strom.server.calls.catalog.state import StateCalls
from strom.server.calls.catalog.tables import TableReads
from strom.server.calls.dispatch import Dispatch
from strom.server.calls.inner import TabletServerCalls
from strom.server.calls.lake.lake import LakeReads
from strom.server.folder.folder import lock_tablet
from strom.server.folder.lake_config import lake_config
from strom.server.process.inner_link import InnerLink, open_inner_listener
from strom.server.process.leash import on_leash
from strom.server.process.listeners import Endpoint
from strom.server.process.log_lines import write_log
from strom.server.process.ports import TABLET_TYPE, Ports
from strom.server.process.process_setup import prepare_process, settle
from strom.server.process.tablet_node import TabletNode
from strom.server.tablets.catalog_view import CatalogView

LAST_ANSWER_S = 5.0
"""How long the answer to the stop may take to leave."""

logger = logging.getLogger(__name__)


class TabletProcessMain:
    """One life of a tablet server's process."""

    def __init__(self, start: dict[str, Any]) -> None:
        self._server_id: int = start["server_id"]
        self._folder: str = start["folder"]
        self._owner = LakeOwner.of_text(start["owner"])
        self._settings = settings_from_json(start["settings"])
        self._secret: str = start["secret"]
        self._coordinator_port: int = start["coordinator_port"]
        write_log(self._settings["logging.format"], f"tablet-{self._server_id}")
        self._endpoints = [
            Endpoint(**{**one, "port": port})
            for one, port in zip(start["endpoints"], start["ports"], strict=True)
        ]
        self._stopped = asyncio.Event()
        self._cleanly = False

    async def main(self) -> int:
        """Serve until the coordinator says stop, or until it is gone."""
        # As hard as kill -9, which the logs survive: another server may take the folder at any moment.
        await on_leash(lambda: os._exit(3))
        world = World.system(offload_threads=self._settings["server.reader-threads"], background=True)
        coordinator = InnerLink(world, self._secret, "the coordinator", self._coordinator_port)
        try:
            await self._serve(world, coordinator)
        except StromError as error:
            failed = ReportFailedStartRequest(
                server_id=self._server_id, process_id=os.getpid(), error_message=error.message
            )
            await coordinator.call(REPORT_FAILED_START, failed, timeout_s=5.0)
            return 1
        finally:
            coordinator.close()
            world.offload.close()
        return 0 if self._cleanly else 1

    async def _serve(self, world: World, coordinator: InnerLink) -> None:
        metrics = Metrics()
        lock = lock_tablet(world.files, self._folder, self._server_id)
        store = EmbeddedStore.open(world.files, self._folder, owner=False, create=False)
        try:
            view = CatalogView(Coordinator(store), world.offload, alone=False)
            ports = self._ports = Ports(world, self._settings, metrics, server_type=TABLET_TYPE)
            self._node = node = TabletNode(
                world, self._settings, self._folder, self._server_id, view, metrics, ports.budget
            )
            node.expiry.ask = lambda request: coordinator.call(EXPIRE_STAGES, request)
            state = StateCalls(view, [node.status], node.status.summary)
            groups = (
                *node.groups,
                DatabaseReads(view),
                TableReads(view),
                PartitionReads(view),
                MetadataCalls(view),
                LakeReads(view, world.clock, lake_config(self._settings, self._folder, self._owner)),
                state,
            )
            bound = await self._open(ports, Dispatch(groups))
            control = TabletServerCalls(node.tablets.hold, node.stages, node.status, self._stop)
            listener = await open_inner_listener(world, self._secret, (control, state))
            node.start()
            settle()
            ready = RegisterServerRequest(
                server_id=self._server_id,
                process_id=os.getpid(),
                ports=[one.port for one in bound],
                inner_port=listener.port,
            )
            await coordinator.call(REGISTER_SERVER, ready)
            await self._stopped.wait()
            await listener.close(LAST_ANSWER_S)
        finally:
            store.close()
            lock.release()

    async def _open(self, ports: Ports, dispatch: Dispatch) -> tuple[Endpoint, ...]:
        """Listen beside the coordinator, or where there is room: clients learn the ports from the metadata."""
        try:
            return await ports.open(self._endpoints, dispatch)
        except PortInUse as error:
            logger.warning("tablet server %s takes another port: %s", self._server_id, error.message)
            return await ports.open([replace(one, port=0) for one in self._endpoints], dispatch)

    async def _stop(self, timeout_s: float) -> bool:
        self._node.finish_waiting()
        await self._ports.close(timeout_s=timeout_s)
        self._cleanly = await self._node.close()
        self._stopped.set()
        return self._cleanly


def settings_from_json(values: dict[str, Any]) -> Settings:
    """The settings of the process that started us."""
    return Settings({name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}, {})


def main() -> int:
    """Read the first line, then serve."""
    prepare_process()
    os.dup2(2, 1)  # what a library prints is no output of ``strom up``
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return 3
    return run(TabletProcessMain(json.loads(line)).main())


if __name__ == "__main__":
    sys.exit(main())
