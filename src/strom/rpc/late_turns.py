"""Connections that used up their last turn: while others ask small things, one of them at a time has the loop.

Each may be within its rights, with a call of two milliseconds; but a small call that arrives behind twenty of them
would wait for all twenty. So they stand in one line, and between two of them the loop hears everybody else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class LateTurns:
    """The line of a listener."""

    def __init__(self) -> None:
        self._line: deque[Callable[[], None]] = deque()

    def wait(self, loop: asyncio.AbstractEventLoop, go: Callable[[], None]) -> None:
        """Have ``go`` called when it is its turn: not before the loop has been round once."""
        self._line.append(go)
        if len(self._line) == 1:
            loop.call_soon(self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        go = self._line.popleft()
        if self._line:
            loop.call_soon(self._next, loop)
        go()
