"""An event loop in a thread of its own, for work on an object store: whoever serves clients never waits for it.

In a simulation it is the loop that is there, so that everything stays deterministic.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from strom.runtime.loops import new_event_loop
from strom.runtime.scheduling import step_back

Result = TypeVar("Result")


class OwnLoop:
    """Runs coroutines elsewhere; begins with the first of them."""

    def __init__(self, *, inline: bool) -> None:
        """``inline``: run them on the caller's loop."""
        self._inline = inline
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of ``work``; its errors are raised here, and it ends when the caller is cancelled."""
        if self._inline:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._started()))

    def close(self) -> None:
        """End the thread. Nobody waits for work any more."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_end_all(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        self._loop = self._thread = None

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = self._loop = new_event_loop()
            self._thread = threading.Thread(target=_run, args=(loop,), name="strom-remote", daemon=True)
            self._thread.start()
        return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    step_back()
    asyncio.set_event_loop(loop)
    loop.run_forever()


async def _end_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
