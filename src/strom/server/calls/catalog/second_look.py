"""What a server does not find by name, it looks for in the metadata before it says so.

What a server knows of the metadata may be a moment old, and a client that was told of a table by one server may ask
another one next. Who was told "not found" gives up, so that answer is given only after everything was read that was
acknowledged anywhere. All questions of a moment share one read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any

from strom.errors import DatabaseNotFound, PartitionNotFound, SchemaNotFound, TableNotFound
from strom.protocol.api_keys import Api
from strom.protocol.message import Message
from strom.protocol.messages.databases import DatabaseExistsResponse
from strom.protocol.messages.tables import TableExistsResponse
from strom.rpc.call import Answer, Call
from strom.server.calls.dispatch import CallGroup, CallHandler
from strom.server.tablets.catalog_view import CatalogView

MISSES = (DatabaseNotFound, TableNotFound, SchemaNotFound, PartitionNotFound)


class SecondLook:
    """A group of calls whose answers are found again, on a newer catalog, if they missed something."""

    def __init__(self, view: CatalogView, group: CallGroup) -> None:
        self._view = view
        self._group = group

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {api: partial(self._answer, handler) for api, handler in self._group.handlers().items()}

    def _answer(self, handler: CallHandler, call: Call) -> Answer:
        try:
            answer = handler(call)
        except MISSES:
            return self._again(handler, call)
        if isinstance(answer, Message):
            return self._again(handler, call) if _says_no(answer) else answer
        return self._settled(answer, handler, call) if isinstance(answer, Awaitable) else answer

    async def _settled(self, answer: Awaitable[Message], handler: CallHandler, call: Call) -> Message:
        try:
            return await answer
        except MISSES:
            return await self._again(handler, call)

    async def _again(self, handler: CallHandler, call: Call) -> Message:
        await self._view.caught_up()
        answer = handler(call)
        return answer if isinstance(answer, Message) else await answer


def _says_no(answer: Message) -> bool:
    return isinstance(answer, DatabaseExistsResponse | TableExistsResponse) and not answer.exists
