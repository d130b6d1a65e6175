"""Reads that take very much memory at once, for one batch that declares to be so large.

Freeing it keeps everybody from the interpreter for a moment. So there is one at a time, and while others ask small
things, each is followed by a rest of many times as long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

HEAVY_BYTES = 64 * 1024 * 1024
REST_PER_WORK = 9.0
REST_S_MAX = 10.0


class HeavyReads:
    """Whose turn it is."""

    def __init__(self, small_calls_about: Callable[[], bool]) -> None:
        self._small_calls_about = small_calls_about
        self._one = asyncio.Lock()
        self._rest_until = float("-inf")

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Around one of them."""
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
