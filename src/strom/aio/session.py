"""What the tables of one connection share: the cluster, the catalog's calls, and the writers behind ``append``."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from strom.client.admin.admin import Admin
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import WriterOptions
from strom.client.lookup.lookups import Lookups
from strom.client.write.append_writer import AppendWriter
from strom.client.write.key_writer import KeyWriter
from strom.client.write.row_writer import RowWriter
from strom.errors import ConnectionClosed

if TYPE_CHECKING:
    from strom.lake.read.warehouses import Warehouses


class OpenTransaction(Protocol):
    """A transaction that is not over."""

    async def abort(self) -> None: ...


class Session:
    """One connection to a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._admin = Admin(cluster)
        self.writers: dict[int, RowWriter] = {}
        """The writers behind ``append`` and ``upsert``, by table id. Changed on the loop, read by any thread."""
        self._lookups: dict[int, Lookups] = {}
        self._own_writers: set[RowWriter] = set()
        """Made by ``Table.writer`` and not closed yet: kept here, or their failures would be lost."""
        self.transactions: set[OpenTransaction] = set()
        """Those that are not over; the session aborts them when it closes."""
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
        """The lake as this connection reads it, opened when a read first needs it."""
        if self._warehouses is None:
            from strom.lake.read.warehouses import Warehouses

            self._warehouses = Warehouses(self.cluster.world.offload)
        return self._warehouses

    @property
    def addresses(self) -> str:
        """The address it is connected to."""
        return ",".join(map(str, self._cluster.addresses))

    def writer_of(self, table: TableInfo) -> RowWriter:
        """The writer behind ``append`` and ``upsert``, shared by all handles of a table."""
        writer = self.writers.get(table.table_id)
        if writer is None:
            writer = self.writers[table.table_id] = self._made(table, WriterOptions())
        return writer

    async def opened_writer(self, table: TableInfo) -> RowWriter:
        """The same for another thread, which must not make it: a writer belongs to the loop."""
        return self.writer_of(table)

    def new_writer(self, table: TableInfo, options: WriterOptions) -> RowWriter:
        """A writer with its own options; closed with the session if not before."""
        writer = self._made(table, options)
        writer.on_close = self._own_writers.discard
        self._own_writers.add(writer)
        return writer

    def _made(self, table: TableInfo, options: WriterOptions) -> RowWriter:
        kind = KeyWriter if table.description.has_primary_key else AppendWriter
        return kind(self.cluster, table, options)

    def lookups_of(self, table: TableInfo) -> Lookups:
        """The lookups of a table, shared by all of its handles."""
        found = self._lookups.get(table.table_id)
        if found is None:
            found = self._lookups[table.table_id] = Lookups(self.cluster, lambda: self.newest(table))
        return found

    def newest(self, table: TableInfo) -> TableInfo:
        """The table, as this client last saw it."""
        known = self._cluster.metadata.tables.get(table.path)
        return known if known is not None and known.table_id == table.table_id else table

    def forget_writer(self, table_id: int) -> RowWriter | None:
        """Remove a table's writer, as when the table is dropped."""
        self._lookups.pop(table_id, None)
        return self.writers.pop(table_id, None)

    async def flush_table(self, table_id: int) -> None:
        """Wait until the rows of one table are acknowledged."""
        writer = self.writers.get(table_id)
        if writer is not None:
            await writer.flush()

    async def flush(self) -> None:
        """Wait until all rows of ``append`` and ``upsert`` are acknowledged; raise the first failure."""
        await _all([writer.flush() for writer in self.writers.values()])

    async def close(self) -> None:
        """Flush and close; raise the first failure. The second time does nothing."""
        if self.closed:
            return
        try:
            for transaction in list(self.transactions):
                await transaction.abort()
            await _all([writer.close() for writer in (*self.writers.values(), *self._own_writers)])
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
