"""Reads that take very much memory at once, for a single batch that declares to be that large.

Freeing it keeps all threads from the interpreter for a moment. So there is one such read at a time, and during small
calls each is followed by a rest many times as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

HEAVY_BYTES = 64 * 1024 * 1024
REST_PER_WORK = 9.0
REST_S_MAX = 10.0


class HeavyReads:
    """One heavy read at a time."""

    def __init__(self, small_calls_about: Callable[[], bool]) -> None:
        self._small_calls_about = small_calls_about
        self._one = asyncio.Lock()
        self._rest_until = float("-inf")

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Surrounds one heavy read."""
        loop = asyncio.get_running_loop()
        async with self._one:
            if self._small_calls_about():
                await asyncio.sleep(max(self._rest_until - loop.time(), 0))
            began = loop.time()
            try:
                yield
            finally:
                took = loop.time() - began
                self._rest_until = loop.time() + min(REST_PER_WORK * took, REST_S_MAX)
