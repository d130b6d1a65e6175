"""One event loop in the background, for blocking callers.

One daemon thread per process runs the loop of every blocking client. A forked child starts its own thread when it
first needs one, since the parent's thread does not exist there. Ctrl-C during a wait cancels the call.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from strom.errors import ConnectionClosed
from strom.runtime.loops import new_event_loop

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class Background:
    """An event loop on its own thread. ``of_this_process`` returns the shared one."""

    _lock = threading.Lock()
    _shared: Background | None = None

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = new_event_loop()
        self._left_behind: set[asyncio.Task[object]] = set()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name="strom-client", daemon=True)
        self._thread.start()
        started.wait()

    @classmethod
    def of_this_process(cls) -> Background:
        """The loop shared by all blocking clients of this process."""
        shared = cls._shared
        if shared is not None and shared.pid == os.getpid():
            return shared
        with cls._lock:
            if cls._shared is None or cls._shared.pid != os.getpid():
                cls._shared = cls()
            return cls._shared

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(started.set)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, Result], timeout_s: float | None = None) -> Result:
        """Run ``work`` on the loop and wait for its result."""
        if threading.current_thread() is self._thread:
            work.close()
            raise ConnectionClosed("a blocking call was made on Strom's own thread; use strom.aio there")
        if self.pid != os.getpid():
            work.close()
            raise ConnectionClosed("this was made before a fork; connect again in the child process")
        if sys.is_finalizing():
            # The loop's thread no longer runs: the wait would never end.
            work.close()
            raise ConnectionClosed("Python is ending; close what you opened before")
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(timeout_s)
        except CancelledError:
            raise ConnectionClosed("the call was cancelled") from None
        except BaseException:
            future.cancel()
            raise

    def run_unless_ending(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run ``work()`` and wait for it, unless Python is shutting down; then it ends by itself."""
        if not sys.is_finalizing() and self.pid == os.getpid():
            self.run(work())

    def start(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Start ``work()`` without waiting, to close an object that was dropped unclosed. Errors are logged."""
        if self.pid == os.getpid() and self._thread.is_alive():
            self.loop.call_soon_threadsafe(self._begin, work)

    def _begin(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        task = self.loop.create_task(work())
        self._left_behind.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._left_behind.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error(
                "something that was dropped without close() could not be closed cleanly", exc_info=error
            )

    @classmethod
    def settle_at_exit(cls, timeout_s: float) -> None:
        """Wait for work that ``start`` began, up to a timeout."""
        shared = cls._shared
        if shared is not None and shared.pid == os.getpid():
            shared.run(shared._settle(timeout_s))

    async def _settle(self, timeout_s: float) -> None:
        if self._left_behind:
            await asyncio.wait(set(self._left_behind), timeout=timeout_s)

    def drive(self, steps: Iterable[Awaitable[object]]) -> None:
        """Do the work between the steps in this thread, and wait for each step on the loop."""
        for step in steps:
            self.run_awaitable(step)

    def run_awaitable(self, work: Awaitable[Result]) -> Result:
        """Like ``run``, for any awaitable."""

        async def awaited() -> Result:
            return await work

        return self.run(awaited())


def after_fork() -> None:
    """In a forked child: the lock may have been held by a thread that does not exist here."""
    Background._lock = threading.Lock()


os.register_at_fork(after_in_child=after_fork)
