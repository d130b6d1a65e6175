"""A process on our leash: it says in a file when it is ready, is started again when it ends, and stops with us."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import Sequence
from typing import Any

from strom.errors import StromError
from strom.runtime.files import Files
from strom.runtime.tasks import Tasks

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
LOOK_S = 0.02
PAUSE_FIRST_S = 1.0
PAUSE_MAX_S = 5.0

logger = logging.getLogger(__name__)


class LeashedProcess:
    """One process, across restarts. Its command has ``--leash`` and ``--ready-file FILE``."""

    def __init__(self, files: Files, name: str, command: Sequence[str]) -> None:
        self._files = files
        self.name = name
        self.ready: dict[str, Any] = {}
        """What it said when it was last ready."""
        self._command = list(command)
        self._ready_file = self._command[self._command.index("--ready-file") + 1]
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False

    async def start(self, tasks: Tasks) -> None:
        """Start it, and return when it is ready; from then on it is started again when it ends."""
        await self._live()
        tasks.spawn(self._keep(), f"keep {self.name}")

    async def _live(self) -> None:
        self._files.remove(self._ready_file)
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C in a terminal is for us alone: we stop our children in order
        )
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not self._files.exists(self._ready_file):
                    if process.returncode is not None:
                        raise StromError(f"{self.name} ended with code {process.returncode} at its start")
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise StromError(f"{self.name} was not ready in {START_TIMEOUT_S:g} s") from None
        self.ready = json.loads(self._files.read_whole(self._ready_file))

    async def _keep(self) -> None:
        loop, pause_s = asyncio.get_running_loop(), PAUSE_FIRST_S
        while True:
            assert self._process is not None
            began = loop.time()
            code = await self._process.wait()
            if self._stopping:
                return
            logger.error("%s ended with code %s; starting it again", self.name, code)
            pause_s = PAUSE_FIRST_S if loop.time() - began > 60 else min(2 * pause_s, PAUSE_MAX_S)
            await asyncio.sleep(pause_s)
            try:
                await self._live()
            except StromError as error:
                logger.error("%s", error.message)

    async def stop(self) -> int:
        """Stop it; one that does not stop in time is killed. Returns its exit code."""
        self._stopping = True
        process = self._process
        if process is None:
            return 0
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
            except TimeoutError:
                logger.error("%s does not stop and is killed", self.name)
                process.kill()
                await process.wait()
        assert process.stdin is not None
        process.stdin.close()
        assert process.returncode is not None
        return process.returncode
