"""Turns of bulk work: during small calls, bulk work steps back.

Scans and loads keep every core busy, ours and those of their clients on the same machine. A small call then waits for a
core several times over, although it needs one only briefly. So as long as there are small calls, bulk work is done in
smaller pieces, a few at a time, with a pause before each piece: a multiple of the time that the loop itself had to wait
for a core since the piece before. Where cores are free the loop does not wait, and bulk work goes on as fast as it can.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from strom.runtime.tasks import Arguments, Offload, Result

RECENT_S = 0.05
"""How long after a small call the next one is expected."""
PIECE_BYTES = 1024 * 1024
"""A piece of bulk work during small calls."""
PAUSE_PER_WAIT = 2.0
PAUSE_S_MIN = 0.0002
PAUSE_S_MAX = 0.02
"""The longest pause, so that bulk work makes progress however busy the machine is."""


class Turns:
    """Admits bulk work: ``async with turns:`` around each piece. Belongs to one loop."""

    def __init__(
        self,
        small_calls_about: Callable[[], bool],
        waited: Callable[[], float],
        *,
        at_once: int,
        paused: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        assert at_once > 0
        self.small_calls_about = small_calls_about
        self._waited = waited
        self._at_once = at_once
        self._paused = paused
        self._running = 0
        self._line: deque[asyncio.Future[None]] = deque()

    def piece(self, size: int) -> int:
        """How much of ``size`` bytes should be one piece now."""
        return min(size, PIECE_BYTES) if self.small_calls_about() else size

    async def __aenter__(self) -> None:
        waited = self._waited()
        if not self.small_calls_about():
            self._running += 1
            return
        await self._take()
        pause = min(waited * PAUSE_PER_WAIT, PAUSE_S_MAX)
        if pause > PAUSE_S_MIN:
            self._paused(pause)
            try:
                await asyncio.sleep(pause)
            except BaseException:
                self._give()
                raise

    async def __aexit__(self, *_: object) -> None:
        self._give()

    async def _take(self) -> None:
        if self._running < self._at_once:
            self._running += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._give()  # the turn was given to us, and we leave
            raise

    def _give(self) -> None:
        while self._line:
            first = self._line.popleft()
            if not first.done():
                first.set_result(None)  # pass the turn on
                return
        self._running -= 1


class InTurns:
    """An offload for bulk work: each piece waits for its turn."""

    def __init__(self, offload: Offload, turns: Turns) -> None:
        self._offload = offload
        self._turns = turns

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        async with self._turns:
            return await self._offload.run(work, *arguments)

    async def everywhere(self, work: Callable[[], None]) -> None:
        await self._offload.everywhere(work)

    def close(self) -> None:
        """Nothing to do: the owner of the underlying offload closes it."""
