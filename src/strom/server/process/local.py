"""A server inside this process, on a thread of its own: what ``strom.open(folder)`` runs.

It listens on a free loopback port, because the client speaks to every server the same way. One process at a time may
have a folder open.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from strom.errors import ServerStopping
from strom.runtime import loops
from strom.runtime.settings import load
from strom.runtime.world import World
from strom.server.process.addresses import Addresses
from strom.server.process.process_setup import raise_open_files
from strom.server.process.serve import RunningServer

JOIN_TIMEOUT_S = 60.0


class LocalServer:
    """A server on a folder, for as long as this object is open."""

    def __init__(
        self, folder: Path | str, settings: Mapping[str, object] | None = None, *, world: World | None = None
    ) -> None:
        flags = {"http.port": -1, **(settings or {}), "data.dir": str(folder), "tablet-server.count": 1}
        self._settings = load(None, {}, flags)
        self._world = world or World.system(offload_threads=self._settings["server.reader-threads"])
        self._thread = threading.Thread(target=self._run, name="strom-server", daemon=True)
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._error: BaseException | None = None
        self.addresses: Addresses

    def start(self) -> LocalServer:
        """Start and wait until it is ready; raises what prevented the start."""
        raise_open_files()
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join(JOIN_TIMEOUT_S)
            raise self._error
        return self

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return self.addresses.address

    def close(self) -> None:
        """Stop in order: every log is closed. Closing twice is fine."""
        loop, stop = self._loop, self._stop
        if loop is None or stop is None or not self._thread.is_alive():
            return
        try:
            loop.call_soon_threadsafe(stop.set)
        except RuntimeError:
            return  # the loop has ended already
        self._thread.join(JOIN_TIMEOUT_S)
        if self._thread.is_alive():
            raise ServerStopping(f"the local server did not stop within {JOIN_TIMEOUT_S} s")

    def __enter__(self) -> LocalServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loops.new_event_loop) as runner:
                runner.run(self._main())
        except BaseException as error:
            self._error = error
        finally:
            self._world.offload.close()
            self._ready.set()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = RunningServer(self._settings, self._world, port=0)
        self.addresses = await server.start()
        self._ready.set()
        await self._stop.wait()
        await server.stop()
