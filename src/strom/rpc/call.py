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
"""What a handler returns: the answer, or something that will become it."""


AtOnce = Callable[[Bytes, int], list[Bytes] | None]
"""Answers a call of the first version without reading it into messages: (frame, request id) -> the answer's frame, as
buffers to send in order.

None: the call takes the usual path. It must not raise, and must do nothing before it is sure of its answer.
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
    """The memory that the call holds; returned when the answer has been sent."""


class Handler(Protocol):
    """Answers calls.

    A returned message is sent immediately: the cheapest way, for work of microseconds. An awaitable is awaited while
    other calls proceed: a promise is answered as soon as it is settled, a future one round of the loop later, and a
    coroutine becomes a task. Calls may share a future, unless they are cancelled with their connection (``api.waits``).
    An exception becomes an error response, unless the handler has a method ``failed(call, error) -> Message | None``
    that returns a response. If the handler has a mapping ``at_once`` of API keys to functions, these are tried first
    (``AtOnce``).
    """

    def __call__(self, call: Call, /) -> Answer:
        """Answer one call."""
