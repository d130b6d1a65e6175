"""Which handler answers which call, for one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from strom.errors import UnsupportedVersion
from strom.protocol.api_keys import API_VERSIONS, AUTHENTICATE, Api
from strom.rpc.call import Answer, Call

CallHandler = Callable[[Call], Answer]


class CallGroup(Protocol):
    """Some calls that belong together."""

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        """Which method answers which call."""


class Dispatch:
    """All calls of one process."""

    def __init__(self, groups: Iterable[CallGroup]) -> None:
        self._handlers: dict[int, CallHandler] = {}
        apis: list[Api[Any, Any]] = [API_VERSIONS, AUTHENTICATE]
        for group in groups:
            for api, handler in group.handlers().items():
                assert api.key not in self._handlers, api
                self._handlers[api.key] = handler
                apis.append(api)
        self.apis = tuple(apis)
        """What the listener advertises."""

    def __call__(self, call: Call) -> Answer:
        """Answer a call."""
        handler = self._handlers.get(call.api.key)
        if handler is None:
            raise UnsupportedVersion(f"this server does not answer {call.api.name}", api=call.api.key)
        return handler(call)
