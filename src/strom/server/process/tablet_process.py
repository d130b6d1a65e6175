"""A tablet server as a process of its own; the supervisor starts it: ``python -m strom.server.process.tablet_process``.

Standard input and output are the pipe to the supervisor. The first line says what to be; when the pipe ends, the
supervisor is gone and so are we, at once: nothing may write to the folder any more once a next server could.
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
from strom.protocol.api_keys import APPLY_STAGES, EXPIRE_STAGES
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
from strom.server.calls.lake.lake import LakeReads
from strom.server.folder.folder import lock_tablet
from strom.server.folder.lake_config import lake_config
from strom.server.process import inner_calls
from strom.server.process.channel import LINE_BYTES_MAX, Channel, Facts
from strom.server.process.listeners import Endpoint
from strom.server.process.log_lines import write_log
from strom.server.process.ports import TABLET_TYPE, Ports
from strom.server.process.process_setup import prepare_process, settle
from strom.server.process.tablet_node import TabletNode
from strom.server.status.status import answering
from strom.server.tablets.catalog_view import CatalogView

logger = logging.getLogger(__name__)


class TabletProcessMain:
    """One life of a tablet server's process."""

    def __init__(self, told: dict[str, Any]) -> None:
        self._server_id: int = told["server_id"]
        self._folder: str = told["folder"]
        self._owner = LakeOwner.of_text(told["owner"])
        self._settings = settings_from_json(told["settings"])
        write_log(self._settings["logging.format"], f"tablet-{self._server_id}")
        self._endpoints = [
            Endpoint(**{**one, "port": port})
            for one, port in zip(told["endpoints"], told["ports"], strict=True)
        ]
        self._stopped = asyncio.Event()
        self._cleanly = False

    async def main(self, output: int) -> int:
        """Serve until told to stop, or until the supervisor is gone."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        writer, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(output, "wb", buffering=0))
        channel = Channel(reader, writer, self._answer)
        listening = asyncio.create_task(self._listen(channel))
        try:
            await self._serve(channel)
        except StromError as error:
            await channel.ask("failed", {"message": error.message}, timeout_s=5.0)
            return 1
        finally:
            listening.cancel()
        return 0 if self._cleanly else 1

    async def _listen(self, channel: Channel) -> None:
        await channel.run()
        # As hard as kill -9, which the logs survive: our folder may belong to someone else in a moment.
        os._exit(3)

    async def _serve(self, channel: Channel) -> None:
        world = World.system(offload_threads=self._settings["server.reader-threads"], background=True)
        metrics = Metrics()
        lock = lock_tablet(world.files, self._folder, self._server_id)
        store = EmbeddedStore.open(world.files, self._folder, owner=False, create=False)
        try:
            view = CatalogView(Coordinator(store), world.offload, alone=False)
            ports = self._ports = Ports(world, self._settings, metrics, server_type=TABLET_TYPE)
            self._node = node = TabletNode(
                world, self._settings, self._folder, self._server_id, view, metrics, ports.budget
            )
            self._status_answer = answering(node.status)
            node.expiry.ask = lambda request: inner_calls.ask(channel.ask, EXPIRE_STAGES, request)
            groups = (
                *node.groups,
                DatabaseReads(view),
                TableReads(view),
                PartitionReads(view),
                MetadataCalls(view),
                LakeReads(view, world.clock, lake_config(self._settings, self._folder, self._owner)),
                StateCalls(view, [node.status], node.status.summary),
            )
            bound = await self._open(ports, Dispatch(groups))
            node.start()
            settle()
            await channel.ask(
                "ready", {"ports": [one.port for one in bound], "process": os.getpid()}, timeout_s=30.0
            )
            await self._stopped.wait()
            # The answer to "stop" is still on its way through the pipe.
            await asyncio.sleep(0.05)
        finally:
            store.close()
            world.offload.close()
            lock.release()

    async def _open(self, ports: Ports, dispatch: Dispatch) -> tuple[Endpoint, ...]:
        """Listen beside the coordinator, or where there is room: clients learn the ports from the metadata."""
        try:
            return await ports.open(self._endpoints, dispatch)
        except PortInUse as error:
            logger.warning("tablet server %s takes another port: %s", self._server_id, error.message)
            return await ports.open([replace(one, port=0) for one in self._endpoints], dispatch)

    async def _answer(self, question: str, facts: dict[str, Any]) -> Facts:
        if question == "stop":
            return await self._stop(facts["timeout_s"])
        if question == "hold":
            await self._node.tablets.hold.engage()
            return {}
        if question == "release":
            return {"held": self._node.tablets.hold.release()}
        if question == inner_calls.QUESTION:
            return await inner_calls.answered({APPLY_STAGES: self._node.stages.apply}, facts)
        answer: Facts = await self._status_answer(question, facts)
        return answer

    async def _stop(self, timeout_s: float) -> Facts:
        self._node.finish_waiting()
        await self._ports.close(timeout_s=timeout_s)
        self._cleanly = await self._node.close()
        self._stopped.set()
        return {"cleanly": self._cleanly}


def settings_to_json(settings: Settings) -> dict[str, Any]:
    """All settings as JSON can carry them."""
    return dict(settings)


def settings_from_json(values: dict[str, Any]) -> Settings:
    """The same settings on the other side of the pipe."""
    return Settings({name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}, {})


def _own_output() -> int:
    """Keep standard output for the pipe: whatever prints goes to standard error instead."""
    output = os.dup(1)
    os.dup2(2, 1)
    return output


def _first_line() -> bytes:
    """Read standard input up to the first line's end and not a byte further: the rest is for the channel."""
    line = bytearray()
    while (byte := os.read(0, 1)) and not line.endswith(b"\n"):
        line += byte
        if byte == b"\n":
            break
    return bytes(line)


def main() -> int:
    """Read the first line, then serve."""
    prepare_process()
    output = _own_output()
    line = _first_line()
    if not line.endswith(b"\n"):
        return 3
    return run(TabletProcessMain(json.loads(line)).main(output))


if __name__ == "__main__":
    sys.exit(main())
