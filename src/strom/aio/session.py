"""What the faces of one connection share: the cluster, the catalog's calls, and the writers behind ``append``."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from strom.aio.writer import Writer
from strom.client.admin.admin import Admin
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import WriterOptions
from strom.client.lookup.lookups import Lookups
from strom.client.write.transaction import Transaction
from strom.errors import ConnectionClosed

if TYPE_CHECKING:
    from strom.lake.read.warehouses import Warehouses


class Session:
    """One connection to a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self._writers: dict[int, Writer] = {}
        """Behind ``append`` and ``upsert``, by table id."""
        self._lookups: dict[int, Lookups] = {}
        self._own_writers: set[Writer] = set()
        """Made by ``Table.writer`` and not closed yet: nobody may forget them, their failures would be lost."""
        self._transactions: set[Transaction] = set()
        self._warehouses: Warehouses | None = None
        self.closed = False

    @property
    def cluster(self) -> Cluster:
        """The core; ConnectionClosed after ``close``."""
        if self.closed:
            raise ConnectionClosed("this connection was closed; connect again")
        return self._cluster

    @property
    def admin(self) -> Admin:
        """The catalog's calls; ConnectionClosed after ``close``."""
        _ = self.cluster
        return self._admin

    @property
    def warehouses(self) -> Warehouses:
        """The lake as this connection reads it; nothing of it is opened before a read needs it."""
        if self._warehouses is None:
            from strom.lake.read.warehouses import Warehouses

            self._warehouses = Warehouses(self.cluster.world.offload)
        return self._warehouses

    @property
    def addresses(self) -> str:
        """Where it is connected to."""
        return ",".join(map(str, self._cluster.addresses))

    def writer_of(self, table: TableInfo) -> Writer:
        """The writer behind ``append``, shared by all handles of a table."""
        writer = self._writers.get(table.table_id)
        if writer is None:
            writer = self._writers[table.table_id] = Writer(self.cluster, table, WriterOptions())
        return writer

    def new_writer(self, table: TableInfo, options: WriterOptions) -> Writer:
        """A writer of its own; closed with the session if not before."""
        writer = Writer(self.cluster, table, options, on_close=self._own_writers.discard)
        self._own_writers.add(writer)
        return writer

    def new_transaction(self, id: str | None, version: int | None, lease_ms: int | None) -> Transaction:
        """A transaction; given up with the session if it is not over before."""
        made = Transaction(self.cluster, id, version, lease_ms=lease_ms, on_end=self._transactions.discard)
        self._transactions.add(made)
        return made

    def lookups_of(self, table: TableInfo) -> Lookups:
        """The lookups of a table, shared by all of its handles."""
        found = self._lookups.get(table.table_id)
        if found is None:
            found = self._lookups[table.table_id] = Lookups(self.cluster, lambda: self.newest(table))
        return found

    def newest(self, table: TableInfo) -> TableInfo:
        """The table as it was when this client last heard of it."""
        known = self._cluster.metadata.tables.get(table.path)
        return known if known is not None and known.table_id == table.table_id else table

    def outstanding(self, table_id: int) -> bool:
        """Whether rows of a table are on their way that ``flush_table`` would wait for."""
        writer = self._writers.get(table_id)
        return writer is not None and writer.outstanding_rows > 0

    def forget_writer(self, table_id: int) -> Writer | None:
        """Take a table's writer away, as when the table is dropped."""
        self._lookups.pop(table_id, None)
        return self._writers.pop(table_id, None)

    async def flush_table(self, table_id: int) -> None:
        """Wait until the rows of one table are acknowledged."""
        writer = self._writers.get(table_id)
        if writer is not None:
            await writer.flush()

    async def flush(self) -> None:
        """Wait until all rows given to ``append`` and ``upsert`` are acknowledged; raise what went wrong first."""
        await _all([writer.flush() for writer in self._writers.values()])

    async def close(self) -> None:
        """Flush and close; raise what went wrong. The second time does nothing."""
        if self.closed:
            return
        try:
            for transaction in list(self._transactions):
                await transaction.abort()
            await _all([writer.close() for writer in (*self._writers.values(), *self._own_writers)])
        finally:
            self.closed = True
            if self._warehouses is not None:
                self._warehouses.close()
            await self._cluster.close()
            self._cluster.world.offload.close()


async def _all(work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Wait for all; then raise the first error."""
    for result in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
