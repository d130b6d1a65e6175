"""Waiting for an offset of a bucket to be reached."""

from __future__ import annotations

import asyncio

from strom.errors import StromError
from strom.tablet.pending import Pending


async def reached(pending: Pending, offset: int) -> None:
    """Wait until ``offset`` is reached; raises what took the tablet away."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def called(error: StromError | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    ticket = pending.add(offset, called)
    try:
        await future
    finally:
        pending.cancel(ticket)
