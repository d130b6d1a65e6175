"""A call as its handler sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from strom.protocol.api_keys import Api
from strom.protocol.message import Message
from strom.rpc.call_memory import BudgetShare
from strom.rpc.promise import Promise
from strom.runtime.files import Bytes

Answer = Message | Awaitable[Message] | Promise[Message]
"""What a handler gives: the answer, or what will become it."""


AtOnce = Callable[[Bytes, int], list[Bytes] | None]
"""Answers a call of the first version without reading it into messages: (frame, request id) -> the answer's frame, as
buffers to send in order.

None: the call is served as every other is. It raises nothing, and does nothing before it is sure of its answer.
"""


class Call(NamedTuple):
    """One request, decoded, with who sent it and where it came in."""

    api: Api[Any, Any]
    version: int
    request: Any
    """An instance of ``api.request``; its payloads are views of the received frame, which is writable."""
    principal: str | None
    """The user who is logged in; None on a listener without authentication."""
    listener_name: str
    connection_id: int
    share: BudgetShare
    """What the call holds of the server's memory; given back when the answer has left."""


class Handler(Protocol):
    """Answers calls.

    A message returned is sent at once: the cheapest way, for what takes microseconds. An awaitable is waited for
    beside other calls: a promise is answered the moment it is kept, a future a round of the loop later, a coroutine
    becomes a task. Calls may share a future, unless they are of a kind that is cancelled with its connection
    (``api.waits``). An exception becomes an error response, unless the handler also has a method
    ``failed(call, error) -> Message | None`` and that gives a response. Where it has a mapping ``at_once`` of API keys
    to functions, those are asked first (``AtOnce``).
    """

    def __call__(self, call: Call, /) -> Answer:
        """Answer one call."""
