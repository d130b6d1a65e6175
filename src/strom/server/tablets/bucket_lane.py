"""The lane of one bucket: its work, one piece at a time, in the order it came.

Appends must keep the order in which they arrived, and only one of them at a time may change a log. Small work is done
at once on the loop; large work leaves the loop for a thread. Then everything that comes after it on the same bucket
queues behind it, small or not, so the order holds without a lock. Bulk work may wait for its turn among all buckets
first.

Work that had to queue may be small when its turn comes (``stays``): then it is done on the loop. Otherwise a stream of
appends that once fell behind would pay for a thread per append until it pauses.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from strom.runtime.tasks import Offload, Tasks
from strom.server.tablets.hold import Hold

T = TypeVar("T")


class _Job(NamedTuple):
    """Work in the queue."""

    work: Callable[[], Any]
    future: asyncio.Future[Any]
    offload: Offload
    stays: Callable[[], bool] | None
    first: Callable[[], Awaitable[None]] | None


class Lane:
    """A queue that empties itself through an offload."""

    def __init__(
        self,
        name: str,
        offload: Offload,
        tasks: Tasks,
        bulk: Offload | None = None,
        hold: Hold | None = None,
    ) -> None:
        self._name = name
        self._offload = offload
        self._bulk = bulk or offload
        self._tasks = tasks
        self._hold = hold or Hold()
        self._queue: deque[_Job] = deque()
        self._running = False

    @property
    def idle(self) -> bool:
        """Whether work may be done on the loop right now without overtaking anything."""
        return not self._running and not self._hold.on

    def submit(
        self,
        job: Callable[[], T],
        *,
        bulk: bool = False,
        stays: Callable[[], bool] | None = None,
        first: Callable[[], Awaitable[None]] | None = None,
    ) -> asyncio.Future[T]:
        """Queue ``job``, to run after everything before it: off the loop, unless ``stays`` says otherwise by then.

        ``first`` is awaited in its turn, before it takes a thread; the lane waits with it.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if not self._running:
            self._tasks.spawn(self._drain(), f"lane {self._name}").add_done_callback(self._ended)
            self._running = True
        self._queue.append(_Job(job, future, self._bulk if bulk else self._offload, stays, first))
        return future

    async def _drain(self) -> None:
        while self._queue:
            if not await self._may_begin(self._queue[0]):
                self._queue.popleft()
                continue
            await self._hold.begin()
            try:
                await self._run(self._queue.popleft())
            finally:
                self._hold.end()
        self._running = False

    async def _may_begin(self, job: _Job) -> bool:
        """What a job waits for before it counts as work. It stays in the queue: a lane that ends cancels it."""
        try:
            if job.first is not None:
                await job.first()
        except Exception as error:
            _fail(job.future, error)
            return False
        return True

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Nobody may wait forever when the lane was cancelled, even before its first step."""
        if task.cancelled():
            self._running = False
            for job in self._queue:
                job.future.cancel()
            self._queue.clear()

    async def _run(self, job: _Job) -> None:
        future = job.future
        try:
            result = await self._done(job)
        except asyncio.CancelledError:
            future.cancel()
            raise
        except BaseException as error:
            _fail(future, error)
        else:
            if not future.done():
                future.set_result(result)

    async def _done(self, job: _Job) -> Any:
        if job.stays is not None and job.stays():
            await asyncio.sleep(0)  # others have their turn first, as they would with a thread
            return job.work()
        return await job.offload.run(job.work)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
        # The caller may have gone away; the failure is its own, not the loop's.
        future.exception()
