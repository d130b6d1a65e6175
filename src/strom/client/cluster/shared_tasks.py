"""Work that several callers want at once and that runs once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class SharedTasks(Generic[Key, Result]):
    """One task per key; callers that come while it runs share its result."""

    def __init__(self) -> None:
        self._running: dict[Key, asyncio.Task[Result]] = {}

    async def run(self, key: Key, work: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of ``work``, or of the task already running for this key."""
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(lambda done: self._ended(key, done))
        # Shielded: a caller that is cancelled must not cancel the others.
        return await asyncio.shield(task)

    def _ended(self, key: Key, task: asyncio.Task[Result]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not warn when every caller gave up

    async def close(self) -> None:
        """Cancel all running tasks."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
