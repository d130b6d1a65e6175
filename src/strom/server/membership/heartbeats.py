"""Control connections: a coordinator asks every server, several times a second, whether it is there.

A connection that ends is noticed when the system notices it, not at the next question; then it is connected again at
once, and a refusal means that the process has ended. What follows from all of it is decided by ``Liveness``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from strom.coordinator.liveness import REFUSED_GRACE_S, Gone, Liveness, Verdict
from strom.errors import Disconnected, RequestTimeout, StromError
from strom.protocol.api_keys import HEARTBEAT, Api
from strom.protocol.messages.inner import HeartbeatRequest, HeartbeatResponse
from strom.rpc.call import Call
from strom.runtime.tasks import Tasks
from strom.server.calls.dispatch import CallHandler
from strom.server.links.inner_link import InnerLink

AGAIN_S = REFUSED_GRACE_S / 5
"""Between two attempts to connect to a server that may just be back."""

IsExpected = Callable[[HeartbeatResponse], bool]
"""Whether the process that answers is the one that is registered."""

logger = logging.getLogger(__name__)


class Heartbeats:
    """The control connections of one coordinator."""

    def __init__(
        self,
        *,
        heartbeat_s: float,
        suspect_after_s: float,
        decided: Callable[[Sequence[Verdict]], None],
    ) -> None:
        """``decided`` is called on the loop whenever servers are suspected or have returned."""
        self.liveness = Liveness(heartbeat_s=heartbeat_s, suspect_after_s=suspect_after_s)
        self._heartbeat_s = heartbeat_s
        self._patience_s = suspect_after_s
        self._decided = decided
        self._tasks = Tasks()
        self._asking: dict[int, asyncio.Task[None]] = {}
        self._woken = asyncio.Event()
        self.cut_from: dict[int, frozenset[int]] = {}
        """By server: the leaders that it did not reach when it answered last."""

    def follow(self, server_id: int, link: InnerLink, is_expected: IsExpected) -> None:
        """Ask this server from now on."""
        if server_id not in self._asking:
            self.liveness.follow(server_id, _now())
            asking = self._ask(server_id, link, is_expected)
            self._asking[server_id] = self._tasks.spawn(asking, f"heartbeat of server {server_id}")

    def forget(self, server_id: int) -> None:
        """Do not ask this server any more."""
        asking = self._asking.pop(server_id, None)
        if asking is not None:
            asking.cancel()
        self.liveness.forget(server_id)
        self.cut_from.pop(server_id, None)

    @property
    def followed(self) -> frozenset[int]:
        """The servers that are asked."""
        return frozenset(self._asking)

    @property
    def gone(self) -> dict[int, Gone]:
        """The servers that do not answer."""
        return self.liveness.gone(_now())

    async def run(self) -> None:
        """Look at what was heard, forever."""
        while True:
            verdicts = self.liveness.look(_now())
            if verdicts:
                self._decided(verdicts)
            self._woken.clear()
            try:
                async with asyncio.timeout_at(self.liveness.look_again_at(_now())):
                    await self._woken.wait()
            except TimeoutError:
                pass  # somebody may be due

    async def close(self) -> None:
        """Ask nobody any more."""
        await self._tasks.close()

    # --- one server ----------------------------------------------------------------------------------------------

    async def _ask(self, server_id: int, link: InnerLink, is_expected: IsExpected) -> None:
        while True:
            began = _now()
            pause_s = self._heartbeat_s
            try:
                answer = await link.call(HEARTBEAT, HeartbeatRequest(), timeout_s=self._patience_s)
                self._heard(server_id, is_expected(answer))
                self.cut_from[server_id] = frozenset(answer.cut_from)
            except Disconnected as error:
                pause_s = self._lost(server_id, refused=bool(error.facts.get("refused")))
            except RequestTimeout:
                link.close()  # whoever is back does not answer on a connection of before
                pause_s = 0.0
            except StromError as error:
                logger.warning("server %s does not take heartbeats: %s", server_id, error)
            await self._until(began + pause_s, link)

    def _heard(self, server_id: int, expected: bool) -> None:
        if expected:
            returned = self.liveness.is_suspected(server_id)
            self.liveness.heard(server_id, _now())
            if returned:
                self._woken.set()
        else:  # a new process listens there: the one that is registered has ended
            self._lost(server_id, refused=True)

    def _lost(self, server_id: int, *, refused: bool) -> float:
        """Note that there is no connection; return when to try again."""
        if refused:
            self.liveness.refused(server_id, _now())
        else:
            self.liveness.closed(server_id, _now())
        self._woken.set()
        return self._heartbeat_s if self.liveness.is_suspected(server_id) else AGAIN_S

    async def _until(self, at: float, link: InnerLink) -> None:
        """Wait, but not longer than the connection lasts."""
        if _now() >= at:
            await asyncio.sleep(0)
        elif link.is_connected:
            try:
                async with asyncio.timeout_at(at):
                    await link.broken()
            except TimeoutError:
                pass  # it is time for the next question
        else:
            await asyncio.sleep(at - _now())


class HeartbeatCalls:
    """Answers in every server of a cluster."""

    def __init__(
        self, incarnation: int, name: str | None = None, cut_from: Callable[[], Sequence[int]] = tuple
    ) -> None:
        """``cut_from``: finds the leaders that cannot be reached from here."""
        self._answer = HeartbeatResponse(incarnation=incarnation, name=name)
        self._cut_from = cut_from

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {HEARTBEAT: self.heartbeat}

    def heartbeat(self, call: Call) -> HeartbeatResponse:
        """Here it is."""
        cut_from = self._cut_from()
        if not cut_from:
            return self._answer
        answer = self._answer
        return HeartbeatResponse(incarnation=answer.incarnation, name=answer.name, cut_from=cut_from)


def _now() -> float:
    return asyncio.get_running_loop().time()
