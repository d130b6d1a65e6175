"""The one place where a test waits for something that happens in real time.

``until`` and ``until_blocking`` look again and again and fail when it never happens. Nothing here waits to see that
something does *not* happen: send something behind it and wait for that instead (``Wire.settled``), or use virtual time
(``strom.testing.loop``). ``pause`` is for what takes time by itself: a handler that is slow, a kill at a random moment.

tests/conftest.py refuses every other real sleep in a test.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable

LOOK_AGAIN_S = 0.01


async def until(holds: Callable[[], bool | Awaitable[bool]], within_s: float = 60.0) -> None:
    """Return once ``holds``, which may be a coroutine function; fail after ``within_s``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        held = holds()
        if await held if inspect.isawaitable(held) else held:
            return
        assert loop.time() < deadline, f"did not happen within {within_s} s"
        await asyncio.sleep(LOOK_AGAIN_S)


def until_blocking(holds: Callable[[], object], within_s: float = 60.0) -> None:
    """``until`` without a loop."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"did not happen within {within_s} s"
        time.sleep(LOOK_AGAIN_S)


def next_millisecond() -> int:
    """A time in milliseconds that is later than everything so far and earlier than everything that follows."""
    now = time.time_ns() // 1_000_000
    until_blocking(lambda: time.time_ns() // 1_000_000 > now)
    until_blocking(lambda: time.time_ns() // 1_000_000 > now + 1)
    return now + 1


async def pause(seconds: float) -> None:
    """Let time pass where the delay itself is what the test plays: a slow handler, a kill at a random moment."""
    await asyncio.sleep(seconds)


def pause_blocking(seconds: float) -> None:
    """``pause`` without a loop."""
    time.sleep(seconds)
