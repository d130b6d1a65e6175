"""Questions and answers between a server and its tablet servers, as lines of JSON over a pair of pipes.

The pipe is also the leash: it belongs to both processes, so each sees at once when the other is gone. Only the
processes that were started with it can use it, so it needs no password; that is why the inner questions (status, stop)
do not go over the network.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from strom.errors import Disconnected, StromError
from strom.runtime.tasks import Tasks

LINE_BYTES_MAX = 64 * 1024 * 1024
"""A status of very many tables is still one line; both ends are our own, so this only stops a mistake."""

Facts = Mapping[str, Any]
Answering = Callable[[str, dict[str, Any]], Awaitable[Facts]]

logger = logging.getLogger(__name__)


class LineWriter(Protocol):
    """The writing end of a pipe."""

    def write(self, data: bytes) -> None:
        """Queue some bytes."""


class Channel:
    """One end: asks the other end, answers what it asks."""

    def __init__(self, reader: asyncio.StreamReader, writer: LineWriter, answer: Answering) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = answer
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._tasks = Tasks()
        self._next = 0
        self.gone = False

    async def ask(
        self, question: str, facts: Facts | None = None, *, timeout_s: float = 30.0
    ) -> dict[str, Any]:
        """The other end's answer; Disconnected when it is gone or does not answer."""
        if self.gone:
            raise Disconnected(f"the other process is gone; it was to be asked for {question!r}")
        self._next += 1
        number = self._next
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        self._send({"id": number, "ask": question, "facts": dict(facts or {})})
        try:
            return await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            raise Disconnected(
                f"the other process did not answer {question!r} within {timeout_s} s"
            ) from None
        finally:
            self._asked.pop(number, None)

    async def run(self) -> None:
        """Take lines until the other end is gone."""
        try:
            while line := await self._reader.readline():
                self._take(json.loads(line))
        except (ValueError, ConnectionError) as error:
            logger.error("the line to the other process broke: %s", error)
        finally:
            self.gone = True
            for future in self._asked.values():
                if not future.done():
                    future.set_exception(Disconnected("the other process is gone"))
            await self._tasks.close()

    def _take(self, message: dict[str, Any]) -> None:
        if "ask" in message:
            self._tasks.spawn(self._reply(message), f"answer {message['ask']}")
            return
        future = self._asked.get(message["id"])
        if future is None or future.done():
            return
        if "error" in message:
            future.set_exception(StromError(message["error"]))
        else:
            future.set_result(message["answer"])

    async def _reply(self, message: dict[str, Any]) -> None:
        try:
            answer = await self._answer(message["ask"], message["facts"])
        except Exception as error:
            logger.exception("answering %r failed", message["ask"])
            self._send({"id": message["id"], "error": f"{type(error).__name__}: {error}"})
        else:
            self._send({"id": message["id"], "answer": dict(answer)})

    def _send(self, message: dict[str, Any]) -> None:
        if not self.gone:
            self._writer.write(json.dumps(message).encode() + b"\n")
