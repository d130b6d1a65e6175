"""Calls that a server passes on to the one that can answer them.

The peer's clients look for a new leader when a write or a fetch was refused, but not otherwise: a lookup is repeated at
the former leader for ever, and the ends and the last rows of a bucket are asked for once. So a server that is asked for
those about a bucket that another one leads asks that one, waits for an election if need be, and answers what it was
answered. What is passed on is never passed on again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from strom.errors import InvalidRequest, NotLeader, Retry
from strom.model.bucket import BucketId
from strom.protocol.api_keys import (
    APIS,
    FORWARD,
    LIMIT_SCAN,
    LIST_OFFSETS,
    LOOKUP,
    PREFIX_LOOKUP,
    Api,
)
from strom.protocol.codec import decode, encode
from strom.protocol.error_codes import code_of
from strom.protocol.message import Message
from strom.protocol.messages.inner import ForwardRequest, ForwardResponse
from strom.rpc.call import Answer, Call
from strom.server.calls.dispatch import CallGroup, CallHandler
from strom.server.replicas.replicas import AskServer
from strom.server.tablets.catalog_view import CatalogView

ELSEWHERE_S = 5.0
"""How long a call waits for a leader that answers it."""
ATTEMPT_S = 2.0
AGAIN_S = 0.05

_NOT_LEADER = code_of(NotLeader(""))


class _Piece(NamedTuple):
    """What a call asks of one bucket."""

    bucket: BucketId
    request: Message


def _each_bucket(request: Any) -> Sequence[_Piece]:
    return [
        _Piece(BucketId(request.table_id, one.partition_id, one.bucket_id), _with(request, buckets_req=[one]))
        for one in request.buckets_req
    ]


def _each_number(request: Any) -> Sequence[_Piece]:
    return [
        _Piece(BucketId(request.table_id, request.partition_id, one), _with(request, bucket_id=[one]))
        for one in request.bucket_id
    ]


def _whole(request: Any) -> Sequence[_Piece]:
    return [_Piece(BucketId(request.table_id, request.partition_id, request.bucket_id), request)]


def _with(message: Message, **changed: object) -> Message:
    return type(message)(**(vars(message) | changed))


PASSED_ON: Mapping[Api[Any, Any], Callable[[Any], Sequence[_Piece]]] = {
    LOOKUP: _each_bucket,
    PREFIX_LOOKUP: _each_bucket,
    LIST_OFFSETS: _each_number,
    LIMIT_SCAN: _whole,
}
"""The calls, and what each asks of which bucket, in the order of its answer."""


class PassedOn:
    """A group of calls of a tablet server: what it does not lead, it asks the leader for."""

    def __init__(self, group: CallGroup, view: CatalogView, server_id: int, ask: AskServer) -> None:
        self._group = group
        self._view = view
        self._server_id = server_id
        self._ask = ask
        self.at_once = getattr(group, "at_once", {})

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {
            api: partial(self._answer, handler) if api in PASSED_ON else handler
            for api, handler in self._group.handlers().items()
        }

    def _answer(self, handler: CallHandler, call: Call) -> Answer:
        answer = handler(call)
        if isinstance(answer, Message) and not any(map(_is_refused, _parts(answer))):
            return answer
        return self._completed(answer, handler, call)

    async def _completed(self, answer: Answer, handler: CallHandler, call: Call) -> Message:
        """The answer, with what the leaders of the buckets say that are not led here."""
        found = await settled(answer)
        parts = _parts(found)
        if not any(map(_is_refused, parts)):
            return found
        pieces = PASSED_ON[call.api](call.request)
        whole = await asyncio.gather(
            *(
                self._elsewhere(handler, call, piece, part) if _is_refused(part) else _given(part)
                for piece, part in zip(pieces, parts, strict=True)
            )
        )
        if hasattr(found, "buckets_resp"):
            return _with(found, buckets_resp=whole)
        (only,) = whole
        return only

    async def _elsewhere(self, handler: CallHandler, call: Call, piece: _Piece, refused: Message) -> Message:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ELSEWHERE_S
        while loop.time() < deadline:
            leader = self._view.fresh().leader_of(piece.bucket)
            if leader is None:
                break  # it was dropped
            try:
                (part,) = _parts(await self._asked(leader, handler, call, piece.request))
            except Retry:
                part = refused
            if not _is_refused(part):
                return part
            await asyncio.sleep(AGAIN_S)
        return refused

    async def _asked(self, leader: int, handler: CallHandler, call: Call, request: Message) -> Message:
        if leader == self._server_id:
            part = call.share.part()
            try:
                return await settled(handler(call._replace(request=request, share=part)))
            finally:
                call.share.join(part)
        answer: ForwardResponse = await self._ask(leader, FORWARD, forwarded(call, request), ATTEMPT_S)
        assert answer.message is not None
        call.share.add(len(answer.message))
        return cast(Message, decode(call.api.response, answer.message))


class PassedOnCalls:
    """Answers what other tablet servers pass on. For inner listeners."""

    def __init__(self, groups: Iterable[CallGroup]) -> None:
        """``groups``: that answer clients, and pass nothing on."""
        self._handlers = {
            api: handler for group in groups for api, handler in group.handlers().items() if api in PASSED_ON
        }

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {FORWARD: self.forward}

    async def forward(self, call: Call) -> Message:
        """Answer a client's call that another server received."""
        inner = passed_call(call, self._handlers)
        answer = await settled(self._handlers[inner.api](inner))
        return ForwardResponse(message=b"".join(encode(answer)))


def forwarded(call: Call, request: Message | None = None) -> ForwardRequest:
    """A client's call as it is passed on."""
    return ForwardRequest(
        api_key=call.api.key,
        api_version=call.version,
        message=b"".join(encode(call.request if request is None else request)),
        principal=call.principal,
        listener_name=call.listener_name,
    )


def passed_call(call: Call, allowed: Collection[Api[Any, Any]]) -> Call:
    """The client's call that was passed on; it must be one of those that are."""
    request: ForwardRequest = call.request
    api = APIS.get(request.api_key)
    if api is None or api not in allowed:
        raise InvalidRequest(f"no call with the key {request.api_key} is passed on", api_key=request.api_key)
    return Call(
        api,
        request.api_version,
        decode(api.request, request.message),
        request.principal,
        request.listener_name,
        call.connection_id,
        call.share,
    )


async def settled(answer: Answer) -> Message:
    """The message that an answer is or becomes."""
    return answer if isinstance(answer, Message) else await answer


async def _given(part: Message) -> Message:
    return part


def _parts(answer: Message) -> Sequence[Message]:
    """What an answer says of each bucket."""
    parts: Sequence[Message] = getattr(answer, "buckets_resp", (answer,))
    return parts


def _is_refused(part: Any) -> bool:
    return bool(part.error_code == _NOT_LEADER)
