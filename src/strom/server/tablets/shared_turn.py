"""Work that many ask for at once, and that is done once for all who asked before it began."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class SharedTurn:
    """One turn of the work runs at a time, and everybody who asks meanwhile shares the next. Belongs to a loop.

    So however many ask, there are never more than two turns to wait for, and ``pause_s`` bounds how often one begins.
    """

    def __init__(self, work: Callable[[], Awaitable[object]], *, pause_s: float = 0.0) -> None:
        """``pause_s``: at least so long from the beginning of one turn to that of the next."""
        self._work = work
        self._pause_s = pause_s
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None
        self._began = float("-inf")

    async def __call__(self) -> None:
        """Wait for a turn that begins after this call; raises what it raises."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._turn(self._running))
            self._next.add_done_callback(_retrieve)
        await asyncio.shield(self._next)

    async def _turn(self, before: asyncio.Task[None] | None) -> None:
        loop = asyncio.get_running_loop()
        if before is not None and not before.done():
            await asyncio.wait([before])
        pause_s = self._began + self._pause_s - loop.time()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        self._running, self._next = self._next, None
        self._began = loop.time()
        await self._work()


def _retrieve(turn: asyncio.Task[None]) -> None:
    if not turn.cancelled():
        turn.exception()  # those who asked may have gone away: then nobody else looks at it
