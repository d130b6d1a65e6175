"""Work outside the event loop: threads for blocking calls, and background tasks with an owner."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from traceback import clear_frames
from typing import Any, Protocol, TypeVar, TypeVarTuple

from strom.errors import ServerStopping
from strom.runtime.scheduling import step_back

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

MEET_S = 0.05
"""How long threads wait for each other in ``everywhere``."""

logger = logging.getLogger(__name__)


class Offload(Protocol):
    """Runs work elsewhere that would block the event loop for more than about a millisecond."""

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        """The result of ``work(*arguments)``; its errors are raised here."""

    async def everywhere(self, work: Callable[[], None]) -> None:
        """Run ``work`` once in every idle thread."""

    def close(self) -> None:
        """Let running work finish, and accept no more."""


class ThreadOffload:
    """Runs work on up to ``workers`` threads, started on demand.

    ``background``: the threads have a lower priority than the loop.
    """

    def __init__(self, workers: int, *, background: bool = False) -> None:
        assert workers > 0
        self._workers = workers
        self._threads = ThreadPoolExecutor(
            workers, thread_name_prefix="strom-offload", initializer=step_back if background else None
        )

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, _let_go, work, *arguments)

    async def everywhere(self, work: Callable[[], None]) -> None:
        met = threading.Barrier(self._workers)

        def once_all_are_here() -> None:
            with suppress(threading.BrokenBarrierError):  # one is busy: skip it
                met.wait(MEET_S)
            work()

        await asyncio.gather(*(self.run(once_all_are_here) for _ in range(self._workers)))

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


def _let_go(work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """``work(*arguments)``; after a failure, its local variables are released.

    An error keeps its frames alive with everything they hold, often in a reference cycle with its waiter: the rows of a
    refused write would stay until the next full garbage collection.
    """
    try:
        return work(*arguments)
    except BaseException as error:
        clear_frames(error.__traceback__)
        raise


class InlineOffload:
    """Runs work in place, so that a simulation stays deterministic.

    Other tasks get a turn first, as they would with threads: callers must not rely on uninterrupted execution.
    """

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        await asyncio.sleep(0)
        return work(*arguments)

    async def everywhere(self, work: Callable[[], None]) -> None:
        await self.run(work)

    def close(self) -> None:
        """Nothing runs between calls."""


class Tasks:
    """The background tasks of one owner: named, kept alive, crashes logged, cancelled by ``close``."""

    def __init__(self) -> None:
        # Ordered by start (a set is not), so that every run of a simulation ends them in the same order.
        self._running: dict[asyncio.Task[Any], None] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._running)

    def spawn(self, work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
        """Start ``work`` as a task of this owner."""
        if self._closed:
            work.close()
            raise ServerStopping(f"no new task {name!r}: its owner is closed", task=name)
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._running[task]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            logger.error("background task %r crashed", task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Cancel every task and wait until it has ended. May be called from one of them, and twice."""
        self._closed = True
        here = asyncio.current_task()
        while others := [task for task in self._running if task is not here]:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
