"""Keeps the tablet servers of this machine running: starts them, notices when one dies, starts it again.

A tablet server is a child that holds our pipe: when we die, by whatever means, it reads the end of the pipe and exits.
When it dies, it is started again with the same id and ports after a pause that grows while it keeps dying. Its buckets
are unavailable meanwhile; clients retry.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from strom.errors import Disconnected, StromError
from strom.runtime.tasks import Tasks
from strom.server.process import inner_calls
from strom.server.process.channel import LINE_BYTES_MAX, Channel, Facts

START_TIMEOUT_S = 60.0
CLOSE_LOGS_S = 20.0
"""Beyond the time for running calls: the time a tablet server has to close its logs."""
PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 5.0
COMMAND = (sys.executable, "-X", "faulthandler", "-m", "strom.server.process.tablet_process")

logger = logging.getLogger(__name__)


class TabletProcess:
    """One tablet server, through all its lives."""

    def __init__(
        self,
        server_id: int,
        first_line: Facts,
        on_ready: Callable[[int, Facts], None],
        answer: Callable[[Facts], Awaitable[Facts]] | None = None,
    ) -> None:
        self.server_id = server_id
        self._answer = answer
        self.ready: Facts = {}
        self.starts = 0
        self._first_line = dict(first_line)
        self._on_ready = on_ready
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None

    @property
    def process_id(self) -> int | None:
        """The running process, or None."""
        return None if self._process is None or self._process.returncode is not None else self._process.pid

    async def live(self, started: asyncio.Future[None]) -> int:
        """One life, from start to end; ``started`` is done once it serves. Returns the exit code."""
        self.starts += 1
        process = self._process = await asyncio.create_subprocess_exec(
            *COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            start_new_session=True,  # Ctrl-C in a terminal is for us alone: we stop our children in order
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(self._first_line).encode() + b"\n")
            channel = self._channel = Channel(process.stdout, process.stdin, self._take)
            self._started = started
            await channel.run()
        finally:
            process.stdin.close()
            await self._reap(process)
        assert process.returncode is not None
        return process.returncode

    async def _reap(self, process: asyncio.subprocess.Process) -> None:
        """The pipe is closed, so the child ends by itself; one that hangs is killed."""
        try:
            await asyncio.wait_for(process.wait(), 5.0)
        except (TimeoutError, asyncio.CancelledError):
            process.kill()
            await process.wait()

    async def _take(self, question: str, facts: dict[str, Any]) -> Facts:
        if question == "failed":
            if not self._started.done():
                self._started.set_exception(StromError(facts["message"]))
            return {}
        if question == inner_calls.QUESTION:
            assert self._answer is not None
            return await self._answer(facts)
        assert question == "ready", question
        self.ready = facts
        # The next life takes the same ports, so that clients find it where it was.
        self._first_line["ports"] = facts["ports"]
        self._on_ready(self.server_id, facts)
        if not self._started.done():
            self._started.set_result(None)
        return {}

    async def ask(
        self, question: str, facts: Facts | None = None, *, timeout_s: float = 30.0
    ) -> dict[str, Any]:
        """Ask the running tablet server; Disconnected when there is none."""
        if self._channel is None:
            raise Disconnected(f"tablet server {self.server_id} does not run")
        return await self._channel.ask(question, facts, timeout_s=timeout_s)


class Supervisor:
    """The tablet servers of this machine."""

    def __init__(
        self,
        first_lines: Mapping[int, Facts],
        on_ready: Callable[[int, Facts], None],
        answer: Callable[[Facts], Awaitable[Facts]] | None = None,
    ) -> None:
        """``answer``: what is said to calls of the tablet servers (``inner_calls``)."""
        self.processes = [
            TabletProcess(server_id, line, on_ready, answer) for server_id, line in first_lines.items()
        ]
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

    async def ask_all(self, question: str, facts: Facts | None = None) -> dict[int, dict[str, Any]]:
        """The answers of those that answer, by server id."""
        answers = await asyncio.gather(
            *(process.ask(question, facts, timeout_s=5.0) for process in self.processes),
            return_exceptions=True,
        )
        found = zip(self.processes, answers, strict=True)
        return {
            process.server_id: answer for process, answer in found if not isinstance(answer, BaseException)
        }

    async def stop(self, timeout_s: float) -> bool:
        """Stop all in order; returns whether all closed their logs. What does not stop in time is killed."""
        self._stopping = True
        facts = {"timeout_s": timeout_s}
        asked = [process.ask("stop", facts, timeout_s=timeout_s + CLOSE_LOGS_S) for process in self.processes]
        answers: Sequence[object] = await asyncio.gather(*asked, return_exceptions=True)
        await self._tasks.close()
        return all(isinstance(answer, dict) and answer.get("cleanly") for answer in answers)
