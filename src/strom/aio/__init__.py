"""Strom for asyncio: the same tables, scans and tails, with ``await``.

    async with await strom.aio.connect("localhost:9123") as db:
        events = await db.table("events")
        await events.append([{"id": 1}])
        async for batch in events.tail(start="earliest"): ...

Everything belongs to the event loop it was made on. What a call does is told in ``strom.api``, whose blocking faces
are drawn over these. Does no work of its own: the core is ``strom.client``.
"""

from __future__ import annotations

from strom.aio.database import Database, connect, open
from strom.aio.table import Table
from strom.aio.tail import Tail
from strom.client.read.row_scan import RowScan as Scan
from strom.client.write.row_writer import RowWriter as Writer

__all__ = ["Database", "Scan", "Table", "Tail", "Writer", "connect", "open"]
