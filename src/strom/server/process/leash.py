"""A process that must not outlive the one that started it.

Standard input is a pipe that the starter holds. When the starter is gone, however it ended, the pipe ends. Nothing
else travels on it after the first line.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable


async def on_leash(ended: Callable[[], None]) -> None:
    """From now on call ``ended`` as soon as standard input ends."""
    await asyncio.get_running_loop().connect_read_pipe(lambda: _Leash(ended), sys.stdin)


class _Leash(asyncio.Protocol):
    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended

    def connection_lost(self, error: Exception | None) -> None:
        self._ended()
