"""The event loop: uvloop where it is installed (half the time per message), else asyncio's own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new loop, to be closed by the caller."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run ``main`` to its end on a new loop; Ctrl-C cancels it."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)
