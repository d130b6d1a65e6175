"""Connections that used up their last turn: while others make small calls, these get the loop one at a time.

Each may be legitimate, with a call of two milliseconds, but a small call behind twenty of them would wait for all
twenty. So they share one queue, and between two of them the loop serves everybody else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class LateTurns:
    """The queue of a listener."""

    def __init__(self) -> None:
        self._line: deque[Callable[[], None]] = deque()

    def wait(self, loop: asyncio.AbstractEventLoop, go: Callable[[], None]) -> None:
        """Call ``go`` when its turn comes, after at least one round of the loop."""
        self._line.append(go)
        if len(self._line) == 1:
            loop.call_soon(self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        go = self._line.popleft()
        if self._line:
            loop.call_soon(self._next, loop)
        go()
