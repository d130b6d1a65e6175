"""Waiting for an offset of a bucket to be reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from strom.errors import StromError
from strom.tablet.pending import Pending


async def reached(pending: Pending, offset: int, look: Callable[[], None] | None = None) -> None:
    """Wait until ``offset`` is reached; raises what took the tablet away.

    ``look`` is called once the wait stands: it finds out whether the offset is reached already.
    """
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ticket = pending.add(offset, partial(settle, future))
    try:
        if look is not None:
            look()
        await future
    finally:
        pending.cancel(ticket)


def settle(future: asyncio.Future[None], error: StromError | None) -> None:
    """The offset is reached, or what went wrong: whoever waits for the future is told once."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
