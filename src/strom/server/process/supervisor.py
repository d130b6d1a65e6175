"""Keeps the tablet servers of this machine running: starts them, notices when one dies, restarts it.

A tablet server is a child on our leash: when we die, by whatever means, its standard input ends and it exits. When it
dies, it is restarted with the same id and ports after a pause that grows while it keeps dying. Its buckets are
unavailable meanwhile; clients retry. Everything else goes by inner calls (``server/links/inner_link.py``).
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from strom.coordinator.catalog import ListenerAddress
from strom.errors import Disconnected, InvalidRequest, StromError
from strom.protocol.api_keys import STOP_SERVER
from strom.protocol.messages.inner import (
    RegisterServerRequest,
    ReportFailedStartRequest,
    StopServerRequest,
    StopServerResponse,
)
from strom.runtime.tasks import Tasks
from strom.server.links.inner_link import LOOPBACK, InnerLink

START_TIMEOUT_S = 60.0
CLOSE_LOGS_S = 20.0
"""The time a tablet server has to close its logs, after the time for running calls."""
REAP_S = 5.0
PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 5.0
COMMAND = (sys.executable, "-X", "faulthandler", "-m", "strom.server.process.tablet_process")

StartLine = Mapping[str, Any]
"""What a tablet server reads from standard input at its start."""
OnReady = Callable[[int, Sequence[int]], None]
"""Called with the id and the public ports of a tablet server each time it has come up."""

logger = logging.getLogger(__name__)


class TabletProcess:
    """One tablet server, across restarts."""

    def __init__(self, server_id: int, start_line: StartLine, link: InnerLink, on_ready: OnReady) -> None:
        self.server_id = server_id
        self.link = link
        self.ports: Sequence[int] = ()
        self.starts = 0
        self._start_line = dict(start_line)
        self._on_ready = on_ready
        self._process: asyncio.subprocess.Process | None = None
        self._started: asyncio.Future[None] | None = None

    @property
    def process_id(self) -> int | None:
        """The running process, or None."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    def facts(self) -> dict[str, Any]:
        """For the status page."""
        return {"process": self.process_id, "starts": self.starts}

    async def live(self, started: asyncio.Future[None]) -> int:
        """One life, from start to end; ``started`` is done once it serves. Returns the exit code."""
        self.starts += 1
        self._started = started
        process = self._process = await asyncio.create_subprocess_exec(
            *COMMAND,
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal is for us alone: we stop our children in order
        )
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(self._start_line).encode() + b"\n")
            return await process.wait()
        finally:
            self.link.point_to(None)
            process.stdin.close()
            await self._reap(process)

    async def _reap(self, process: asyncio.subprocess.Process) -> None:
        """Its leash is cut, so the child ends by itself; one that hangs is killed."""
        try:
            await asyncio.wait_for(process.wait(), REAP_S)
        except (TimeoutError, asyncio.CancelledError):
            process.kill()
            await process.wait()

    def registered(self, request: RegisterServerRequest) -> None:
        """The running process serves."""
        self._check_alive(request.process_id)
        self.link.point_to(ListenerAddress(LOOPBACK, request.inner_port))
        # The next life takes the same ports, so that clients find it where it was.
        self.ports = self._start_line["ports"] = list(request.ports)
        self._on_ready(self.server_id, self.ports)
        if self._started is not None and not self._started.done():
            self._started.set_result(None)

    def failed(self, request: ReportFailedStartRequest) -> None:
        """The running process cannot start."""
        self._check_alive(request.process_id)
        if self._started is not None and not self._started.done():
            self._started.set_exception(StromError(request.error_message))

    def _check_alive(self, process_id: int) -> None:
        if process_id != self.process_id:
            raise InvalidRequest(
                f"process {process_id} is not tablet server {self.server_id}: that is process {self.process_id}"
            )


class Supervisor:
    """The tablet servers of this machine."""

    def __init__(self, processes: Sequence[TabletProcess]) -> None:
        self.processes = processes
        self._tasks = Tasks()
        self._stopping = False

    async def start(self) -> None:
        """Start all; returns when all serve."""
        loop = asyncio.get_running_loop()
        started = [loop.create_future() for _ in self.processes]
        for process, future in zip(self.processes, started, strict=True):
            self._tasks.spawn(self._keep(process, future), f"tablet server {process.server_id}")
        try:
            await asyncio.wait_for(asyncio.gather(*started), START_TIMEOUT_S)
        except BaseException:
            await self._tasks.close()
            raise

    async def _keep(self, process: TabletProcess, started: asyncio.Future[None]) -> None:
        pause_s = PAUSE_FIRST_S
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            code = await process.live(started)
            if self._stopping:
                return
            if not started.done():
                started.set_exception(
                    StromError(f"tablet server {process.server_id} ended with code {code} at start")
                )
                return
            logger.error("tablet server %s ended with code %s; starting it again", process.server_id, code)
            pause_s = PAUSE_FIRST_S if loop.time() - began > 60 else min(2 * pause_s, PAUSE_MAX_S)
            await asyncio.sleep(pause_s)
            started = loop.create_future()
            started.add_done_callback(lambda future: future.cancelled() or future.exception())

    def process(self, server_id: int) -> TabletProcess:
        """The tablet server with this id; Disconnected when there is none."""
        for process in self.processes:
            if process.server_id == server_id:
                return process
        raise Disconnected(f"there is no tablet server {server_id}")

    async def stop(self, timeout_s: float) -> bool:
        """Stop all in order; returns whether all closed their logs. A tablet server that does not stop in time is
        killed."""
        self._stopping = True
        request = StopServerRequest(timeout_ms=round(timeout_s * 1000))
        answers: Sequence[object] = await asyncio.gather(
            *(
                process.link.call(STOP_SERVER, request, timeout_s=timeout_s + CLOSE_LOGS_S)
                for process in self.processes
            ),
            return_exceptions=True,
        )
        await self._tasks.close()
        return all(isinstance(answer, StopServerResponse) and answer.cleanly for answer in answers)
