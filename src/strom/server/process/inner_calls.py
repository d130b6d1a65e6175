"""Calls between the coordinator and its tablet servers: messages of the protocol, over the pipe they share.

No listener takes them: who may publish a stage is the coordinator alone, and the pipe needs no password. An
error keeps its number on the way.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from strom.errors import StromError
from strom.protocol.api_keys import APIS, Api
from strom.protocol.codec import decode, encode
from strom.protocol.error_codes import code_of, error_of, message_of
from strom.protocol.message import Message
from strom.server.process.channel import LINE_BYTES_MAX, Facts

QUESTION = "call"
TIMEOUT_S = 600.0
"""A large stage takes its time; when the other process is gone, that is noticed at once."""

FIELDS_MAX = LINE_BYTES_MAX
"""No bound of its own: both ends are ours, and a decision of many tasks names each of them for every bucket."""

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class Ask(Protocol):
    """``Channel.ask``, and whatever asks as it does."""

    def __call__(
        self, question: str, facts: Facts | None = None, *, timeout_s: float = ...
    ) -> Awaitable[dict[str, Any]]: ...


Answer = Callable[[Any], Awaitable[Message]]


async def ask(channel: Ask, api: Api[Request, Response], request: Request) -> Response:
    """The other process's answer."""
    facts = {"key": api.key, "body": _text(request)}
    answer = await channel(QUESTION, facts, timeout_s=TIMEOUT_S)
    if "code" in answer:
        raise error_of(answer["code"], answer["message"])
    return decode(api.response, bytearray(b64decode(answer["body"])), fields_max=FIELDS_MAX)


async def answered(handlers: Mapping[Api[Any, Any], Answer], facts: Facts) -> Facts:
    """What to say to a question of ``ask``."""
    api = APIS[facts["key"]]
    request = decode(api.request, bytearray(b64decode(facts["body"])), fields_max=FIELDS_MAX)
    try:
        return {"body": _text(await handlers[api](request))}
    except StromError as error:
        return {"code": code_of(error), "message": message_of(error)}


def _text(message: Message) -> str:
    return b64encode(b"".join(bytes(one) for one in encode(message))).decode()
