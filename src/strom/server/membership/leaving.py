"""Before a tablet server stops: it asks for other leaders of its buckets, and waits until it sees that they lead.

Whoever is the active coordinator then may be about to end, too: the question is asked again, of whoever takes over,
while there is time and somebody is announced who could.
"""

from __future__ import annotations

import asyncio
import logging

from strom.errors import Disconnected, Retry, StromError
from strom.protocol.api_keys import LEAVE
from strom.protocol.messages.inner import LeaveRequest
from strom.server.links.server_links import ServerLinks
from strom.server.tablets.catalog_view import CatalogView

ASK_S = 3.0
"""For one answer; asked again, the coordinator goes on with what is left."""
AGAIN_S = 0.1

logger = logging.getLogger(__name__)


async def leave(links: ServerLinks, view: CatalogView, request: LeaveRequest, *, within_s: float) -> None:
    """Have other servers lead the buckets of this one, as far as they can, and as far as there is time."""
    moved = asyncio.Event()
    forget = view.watch(lambda change: moved.set())
    try:
        async with asyncio.timeout(within_s):
            left = await _asked(links, view, request)
            while view.fresh().replicas.leader_count(request.server_id) > left:
                await moved.wait()
                moved.clear()
    except (StromError, TimeoutError) as error:
        logger.info("stopping without other leaders: %s", error or "it takes too long")
    finally:
        forget()


async def _asked(links: ServerLinks, view: CatalogView, request: LeaveRequest) -> int:
    """How many buckets nobody else can lead."""
    while True:
        try:
            return (await links.active.call(LEAVE, request, timeout_s=ASK_S)).led
        except Retry as error:
            if not view.fresh().coordinators:
                raise Disconnected(f"no coordinator is there: {error.message}") from error
        await asyncio.sleep(AGAIN_S)
