"""A server that starts before the metadata can be reached: it waits, says so in one line, and on its HTTP port.

A machine room that gets its power back starts everything at once: whoever is ready first waits for the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from strom.errors import Disconnected, ForeignMetadata, OutcomeUnknown, RequestTimeout, StromError
from strom.rpc.http_server import HttpAnswer
from strom.server.process.web_port import WebPort
from strom.server.status.concern import Concern
from strom.server.web.health import health_answer

T = TypeVar("T")

AGAIN_S = 0.5
UNREACHABLE = (Disconnected, RequestTimeout, OutcomeUnknown)
NO_CLUSTER_YET = (*UNREACHABLE, ForeignMetadata)
"""For who must not make a cluster of an empty root: until the first coordinator has made one."""

logger = logging.getLogger(__name__)


class MetadataWait:
    """The steps of a start that need the metadata."""

    def __init__(self, web: WebPort, role: str) -> None:
        """``role``: who waits."""
        self._web = web
        self._role = role
        self._reason: str | None = None

    async def until_answered(
        self,
        step: Callable[[], Awaitable[T]],
        waited_for: tuple[type[StromError], ...] = UNREACHABLE,
    ) -> T:
        """What a step returns in the end. It is repeated, so half of it may have happened before."""
        while True:
            try:
                found = await step()
            except waited_for as error:
                await self._waits(error.message)
                await asyncio.sleep(AGAIN_S)
            else:
                self._goes_on()
                return found

    async def _waits(self, reason: str) -> None:
        told, self._reason = self._reason is not None, reason
        if not told:
            logger.warning("waiting for the metadata, and starting then: %s", reason)
            await self._web.open(self)

    def _goes_on(self) -> None:
        if self._reason is not None:
            logger.info("the metadata answer: the start goes on")
            self._reason = None

    async def respond(self, path: str) -> HttpAnswer:
        """``/health`` says what is waited for, and so does every other page."""
        what = f"this {self._role} starts" + (
            f", and waits for the metadata: {self._reason}" if self._reason is not None else ""
        )
        concern = Concern(
            "bad", "starting", what, "see whether ZooKeeper has a majority, and a coordinator runs"
        )
        answer = health_answer([concern], role=self._role)
        return answer if path == "/health" else HttpAnswer(what + "\n", status=answer.status)
