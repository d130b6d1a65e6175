"""The blocking API: what ``strom.connect`` and ``strom.open`` return.

Every method hands its work to one background event loop and waits (``strom.client.cluster.blocking``); the work on rows
is done by the calling thread. Threads may share objects. A forked process reconnects by itself; writers, scans and
tails that its parent made stay with the parent.

Read first: ``database.py``, then ``table.py``. The same for asyncio: ``strom.aio``.
"""

from __future__ import annotations

from strom.api.database import Database, connect, open
from strom.api.scan import Scan
from strom.api.table import Table
from strom.api.tail import Tail
from strom.api.writer import Writer

__all__ = ["Database", "Scan", "Table", "Tail", "Writer", "connect", "open"]
