"""Which handler answers which call, for one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from strom.errors import UnsupportedVersion
from strom.protocol.api_keys import API_VERSIONS, AUTHENTICATE, Api
from strom.rpc.call import Answer, AtOnce, Call

CallHandler = Callable[[Call], Answer]


class CallGroup(Protocol):
    """Calls that belong together. An optional mapping ``at_once`` has fast paths for some of them."""

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        """Which method answers which call."""


class Dispatch:
    """All calls of one process."""

    def __init__(self, groups: Iterable[CallGroup]) -> None:
        self._handlers: dict[int, CallHandler] = {}
        self.at_once: dict[int, AtOnce] = {}
        """The fast paths by API key: they answer without building a call."""
        apis: list[Api[Any, Any]] = [API_VERSIONS, AUTHENTICATE]
        for group in groups:
            for api, handler in group.handlers().items():
                assert api.key not in self._handlers, api
                self._handlers[api.key] = handler
                apis.append(api)
            quick: Mapping[Api[Any, Any], AtOnce] = getattr(group, "at_once", {})
            self.at_once |= {api.key: answer for api, answer in quick.items()}
        self.apis = tuple(apis)
        """What the listener advertises."""

    def __call__(self, call: Call) -> Answer:
        """Answer a call."""
        handler = self._handlers.get(call.api.key)
        if handler is None:
            raise UnsupportedVersion(f"this server does not answer {call.api.name}", api=call.api.key)
        return handler(call)
