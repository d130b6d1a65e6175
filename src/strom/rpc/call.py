"""A call as its handler sees it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, NamedTuple, Protocol

from strom.protocol.api_keys import Api
from strom.protocol.message import Message
from strom.rpc.promise import Promise

Answer = Message | Awaitable[Message] | Promise[Message]
"""What a handler gives: the answer, or what will become it."""


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


class Handler(Protocol):
    """Answers calls.

    A message returned is sent at once: the cheapest way, for what takes microseconds. An awaitable is waited for
    beside other calls: a promise is answered the moment it is kept, a future a round of the loop later, a coroutine
    becomes a task. Calls may share a future, unless they are of a kind that is cancelled with its connection
    (``api.waits``). An exception becomes an error response, unless the handler also has a method
    ``failed(call, error) -> Message | None`` and that gives a response.
    """

    def __call__(self, call: Call, /) -> Answer:
        """Answer one call."""
