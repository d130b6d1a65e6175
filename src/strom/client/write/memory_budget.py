"""The memory that a writer may hold: taken by appending threads, given back by the event loop.

An amount larger than the whole budget is admitted when nothing else is held: a limit must not become a deadlock.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque


class MemoryBudget:
    """The bytes that are taken, and their limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._lock = threading.Lock()
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def taken(self) -> int:
        """How much is taken."""
        return self._taken

    def try_take(self, amount: int) -> bool:
        """Take ``amount`` if there is room; from any thread."""
        with self._lock:
            if self._taken and self._taken + amount > self._limit:
                return False
            self._taken += amount
            return True

    async def take(self, amount: int) -> None:
        """Wait for room and take ``amount``; on the loop. First come, first served."""
        newcomer = True
        while (newcomer and self._waiting) or not self.try_take(amount):
            future = asyncio.get_running_loop().create_future()
            if newcomer:
                self._waiting.append(future)
            else:
                self._waiting.appendleft(future)
            newcomer = False
            try:
                await future
            except asyncio.CancelledError:
                self._wake()  # it may have been our turn: pass it on
                raise
        self._wake()

    def give(self, amount: int) -> None:
        """Give back; on the loop."""
        with self._lock:
            self._taken -= amount
            assert self._taken >= 0, "more given back than taken"
        self._wake()

    def give_quietly(self, amount: int) -> bool:
        """Give back from any thread. True if somebody waits: then call ``give(0)`` on the loop."""
        with self._lock:
            self._taken -= amount
            assert self._taken >= 0, "more given back than taken"
        return bool(self._waiting)

    def _wake(self) -> None:
        """Let the first in line try; it wakes the next one when it succeeded."""
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return
