"""Strom for asyncio: the same tables, scans and tails, with ``await``.

    async with await strom.aio.connect("localhost:9123") as db:
        events = await db.table("events")
        await events.append([{"id": 1}])
        async for batch in events.tail(start="earliest"): ...

Everything belongs to the event loop it was made on. ``strom.api`` documents what each call does; its blocking classes
drive these. ``Scan`` and ``Writer`` are the classes of ``strom.client`` themselves.
"""

from __future__ import annotations

from strom.aio.database import Database, connect, open
from strom.aio.table import Table
from strom.aio.tail import Tail
from strom.client.read.row_scan import RowScan as Scan
from strom.client.write.row_writer import RowWriter as Writer

__all__ = ["Database", "Scan", "Table", "Tail", "Writer", "connect", "open"]
