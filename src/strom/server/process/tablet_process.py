"""A tablet server as a process of its own; the supervisor starts it: ``python -m strom.server.process.tablet_process``.

The first line of standard input describes the server. Standard input is also the leash: when it ends, the supervisor
is gone and so are we, at once, because nothing may write to the folder any more once another server could.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from strom.coordinator.catalog import ListenerAddress
from strom.coordinator.coordinator import Coordinator
from strom.errors import StromError
from strom.metadata.embedded import EmbeddedStore
from strom.model.lake.lake_owner import LakeOwner
from strom.protocol.api_keys import EXPIRE_STAGES, REGISTER_SERVER, REPORT_FAILED_START
from strom.protocol.messages.inner import RegisterServerRequest, ReportFailedStartRequest
from strom.runtime.loops import run
from strom.runtime.settings import Settings
from strom.runtime.world import World
from strom.server.folder.bucket_folders import BucketFolders
from strom.server.folder.folder import lock_tablet
from strom.server.folder.lake_config import lake_config
from strom.server.links.inner_link import LOOPBACK, InnerLink
from strom.server.process.leash import on_leash
from strom.server.process.listeners import Endpoint
from strom.server.process.log_lines import write_log
from strom.server.process.process_setup import prepare_process, settle
from strom.server.process.tablet_server import TabletDoors, TabletServer
from strom.server.tablets.catalog_view import CatalogView

LAST_ANSWER_S = 5.0
"""How long the answer to the stop may take to leave."""


class TabletProcessMain:
    """One life of a tablet server's process."""

    def __init__(self, start: dict[str, Any]) -> None:
        self._server_id: int = start["server_id"]
        self._folder: str = start["folder"]
        self._owner = LakeOwner.of_text(start["owner"])
        self._settings = settings_from_json(start["settings"])
        self._coordinator = ListenerAddress(LOOPBACK, start["coordinator_port"])
        write_log(self._settings["logging.format"], f"tablet-{self._server_id}")
        endpoints = [
            Endpoint(**{**one, "port": port})
            for one, port in zip(start["endpoints"], start["ports"], strict=True)
        ]
        self._doors = TabletDoors(endpoints, secret=start["secret"], any_port=True)
        self._server: TabletServer
        self._stopped = asyncio.Event()
        self._cleanly = False

    async def main(self) -> int:
        """Serve until the coordinator says stop, or until it is gone."""
        # As hard as kill -9, which the logs survive: another server may take the folder at any moment.
        await on_leash(lambda: os._exit(3))
        world = World.system(offload_threads=self._settings["server.reader-threads"], background=True)
        coordinator = InnerLink(world, self._doors.secret, "the coordinator", self._coordinator)
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
        lock = lock_tablet(world.files, self._folder, self._server_id)
        store = EmbeddedStore.open(world.files, self._folder, owner=False, create=False)
        try:
            server = self._server = TabletServer(
                world,
                self._settings,
                CatalogView(Coordinator(store), world.offload, alone=False),
                self._doors,
                server_id=self._server_id,
                folders=BucketFolders(world.files, [self._folder]),
                lake=lake_config(self._settings, self._folder, self._owner),
            )
            server.node.expiry.ask = lambda request: coordinator.call(EXPIRE_STAGES, request)
            await server.open(self._stop)
            settle()
            ready = RegisterServerRequest(
                server_id=self._server_id,
                process_id=os.getpid(),
                ports=[one.port for one in server.endpoints],
                inner_port=server.inner_port,
            )
            await coordinator.call(REGISTER_SERVER, ready)
            await self._stopped.wait()
            await server.close_inner(LAST_ANSWER_S)
        finally:
            store.close()
            lock.release()

    async def _stop(self, timeout_s: float) -> bool:
        self._cleanly = await self._server.stop(timeout_s)
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
