"""The lane of one bucket: its work, one piece at a time, in the order it came.

Appends must keep the order in which they arrived, and a log is changed by one hand at a time. Small work is done at
once on the loop; large work leaves the loop for a thread. Then everything that comes after it on the same bucket queues
behind it, small or not, so the order holds without a lock. Bulk work may wait for its turn among all buckets first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from strom.runtime.tasks import Offload, Tasks

T = TypeVar("T")


class Lane:
    """A queue that empties itself through an offload."""

    def __init__(self, name: str, offload: Offload, tasks: Tasks, bulk: Offload | None = None) -> None:
        self._name = name
        self._offload = offload
        self._bulk = bulk or offload
        self._tasks = tasks
        self._queue: deque[tuple[Callable[[], Any], asyncio.Future[Any], Offload]] = deque()
        self._running = False

    @property
    def idle(self) -> bool:
        """Whether work may be done on the loop right now without overtaking anything."""
        return not self._running

    def submit(self, job: Callable[[], T], *, bulk: bool = False) -> asyncio.Future[T]:
        """Queue ``job``, to be run off the loop after everything before it."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if not self._running:
            self._tasks.spawn(self._drain(), f"lane {self._name}").add_done_callback(self._ended)
            self._running = True
        self._queue.append((job, future, self._bulk if bulk else self._offload))
        return future

    async def _drain(self) -> None:
        while self._queue:
            await self._run(*self._queue.popleft())
        self._running = False

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Nobody may wait for ever when the lane was cancelled, even before its first step."""
        if task.cancelled():
            self._running = False
            for _, future, _ in self._queue:
                future.cancel()
            self._queue.clear()

    async def _run(self, job: Callable[[], Any], future: asyncio.Future[Any], offload: Offload) -> None:
        try:
            result = await offload.run(job)
        except asyncio.CancelledError:
            future.cancel()
            raise
        except BaseException as error:
            if not future.done():
                future.set_exception(error)
                # Whoever asked may have gone away; the failure is theirs, not the loop's.
                future.exception()
        else:
            if not future.done():
                future.set_result(result)
