"""Calls that only the active coordinator answers: it does, and one that stands by passes them on to it.

Clients find the active coordinator in the metadata; a call at another one is of a client that looked a moment ago. The
peer's clients give up when a coordinator says that it is not the active one, so the call is passed on instead. While
nobody is active, it waits for a while: an election takes less than a second as a rule.

A call whose connection broke after it was sent is not tried again: it may have happened. Its client decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any, cast

from strom.errors import Disconnected, NotCoordinator
from strom.protocol.api_keys import APIS, BACKUP, FORWARD, GET_LAKE, GET_LAKE_SNAPSHOT, INNER_APIS, Api, Role
from strom.protocol.codec import decode, encode
from strom.protocol.message import Message
from strom.protocol.messages.inner import ForwardResponse
from strom.rpc.call import Answer, Call
from strom.server.calls.dispatch import CallGroup, CallHandler, Dispatch
from strom.server.calls.passing import forwarded, passed_call, settled
from strom.server.links.server_links import ServerLinks

DUTIES = tuple(
    api
    for api in APIS.values()
    if api.role is Role.COORDINATOR and api not in INNER_APIS and api is not BACKUP
)
"""What clients ask of the active coordinator alone. A backup is of one machine's folder: a cluster offers none."""
WAIT_S = 5.0
"""How long a call waits for somebody to become active."""
LOOK_S = 0.02
CONNECT_S = 1.0
FORWARD_S = 600.0
"""As long as the slowest call may take; if the active coordinator dies, the call fails at once."""


class ActiveCalls:
    """The calls of the active coordinator, in every coordinator's process."""

    def __init__(self, links: ServerLinks, lake: CallGroup) -> None:
        """``lake``: answers reads of the lake while this coordinator stands by."""
        self._links = links
        self._reads = lake.handlers()
        self._duties: Dispatch | None = None

    def begin(self, groups: Iterable[CallGroup]) -> None:
        """This coordinator is the active one from now on, and these answer."""
        self._duties = Dispatch(groups)

    def end(self) -> None:
        """It is not any longer."""
        self._duties = None

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        duties: dict[Api[Any, Any], CallHandler] = dict.fromkeys(DUTIES, self.answer)
        return duties | dict.fromkeys((GET_LAKE, GET_LAKE_SNAPSHOT), self._read)

    async def answer(self, call: Call) -> Message:
        """Answer a call, or have it answered."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WAIT_S
        reason = ""
        while loop.time() < deadline:
            try:
                return await self._answered(call)
            except NotCoordinator as error:
                reason = error.message
            await asyncio.sleep(LOOK_S)
        raise NotCoordinator(f"no coordinator is active right now ({reason}): try again")

    async def answer_here(self, call: Call) -> Message:
        """Answer a call that another coordinator passed on; NotCoordinator if it came to the wrong one."""
        if self._duties is None:
            raise NotCoordinator("this coordinator is not the active one")
        return await settled(self._duties(call))

    def _read(self, call: Call) -> Answer:
        return self._duties(call) if self._duties is not None else self._reads[call.api](call)

    async def _answered(self, call: Call) -> Message:
        """One attempt; NotCoordinator: nothing of it happened."""
        if self._duties is not None:
            return await settled(self._duties(call))
        active = self._links.active
        try:
            await active.connect(CONNECT_S)
        except Disconnected as error:
            raise NotCoordinator(error.message) from None
        answer = await active.call(FORWARD, forwarded(call), timeout_s=FORWARD_S)
        if answer.message is None:
            raise NotCoordinator("the coordinator that was active is not any longer")
        return cast(Message, decode(call.api.response, answer.message))


class ForwardCalls:
    """Answers what other coordinators pass on."""

    def __init__(self, calls: ActiveCalls) -> None:
        self._calls = calls

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {FORWARD: self.forward}

    def forward(self, call: Call) -> Awaitable[Message]:
        """Answer a client's call that another coordinator received."""
        return self._forward(passed_call(call, DUTIES))

    async def _forward(self, call: Call) -> Message:
        try:
            answer = await self._calls.answer_here(call)
        except NotCoordinator:
            return ForwardResponse()
        return ForwardResponse(message=b"".join(encode(answer)))
