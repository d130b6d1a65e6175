"""Status over the wire: TableStatus and ServerStatus."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from strom.protocol.api_keys import SERVER_STATUS, TABLE_STATUS, Api
from strom.protocol.message import Message
from strom.protocol.messages import own
from strom.rpc.call import Call
from strom.server.calls.catalog.descriptions import path_of
from strom.server.calls.dispatch import CallHandler
from strom.server.status.status import TabletServers
from strom.server.tablets.catalog_view import CatalogView

Describe = Callable[[], Awaitable[dict[str, Any]]]


class StateCalls:
    """Answers for the tablet servers it was given: its own, or (in the coordinator's process) all of them."""

    def __init__(self, view: CatalogView, servers: TabletServers, describe: Describe) -> None:
        self._view = view
        self._servers = servers
        self._describe = describe

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {TABLE_STATUS: self.table_status, SERVER_STATUS: self.server_status}

    async def table_status(self, call: Call) -> Message:
        """Every bucket of a table: offsets, sizes, errors."""
        request: own.TableStatusRequest = call.request
        table = self._view.fresh().table(path_of(request.table_path))
        answers = await asyncio.gather(*(server.table(table.table_id) for server in self._servers()))
        buckets = sorted(
            (status for answer in answers for status in answer),
            key=lambda status: (status.partition_id or -1, status.bucket_id),
        )
        return own.TableStatusResponse(table_id=table.table_id, buckets=buckets)

    async def server_status(self, call: Call) -> Message:
        """What the status page shows, as JSON."""
        return own.ServerStatusResponse(status_json=json.dumps(await self._describe()).encode())
