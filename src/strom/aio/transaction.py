"""The async face of a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from strom.aio.session import Session
from strom.aio.table import Table
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.partition_choice import partition_texts
from strom.client.write.transaction import Committed
from strom.client.write.transaction import Transaction as Core
from strom.model.partitions import partition_name
from strom.model.table import TablePath

TableLike = str | Table


class Transaction:
    """Rows of many tables, published at once when it is left without an error; see ``strom.Transaction``.

    >>> async with db.transaction("nightly", version=7) as tx:
    ...     await tx.append("orders", rows)
    """

    def __init__(self, session: Session, core: Core, database: str) -> None:
        self._session = session
        self._core = core
        self._database = database
        self._infos: dict[TablePath, TableInfo] = {}

    def __repr__(self) -> str:
        return repr(self._core)

    @property
    def core(self) -> Core:
        """What does the work."""
        return self._core

    @property
    def repeated(self) -> bool:
        """Whether this version was published before, for every table so far."""
        return self._core.repeated

    @property
    def committed(self) -> Committed | None:
        """What became of it; None before the commit."""
        return self._core.committed

    async def append(self, table: TableLike, data: object) -> None:
        """Append rows to a log table."""
        await self._core.append(await self.info_of(table), data)

    async def upsert(self, table: TableLike, data: object, columns: Sequence[str] | None = None) -> None:
        """Write rows of a primary-key table."""
        await self._core.upsert(await self.info_of(table), data, columns)

    async def delete(self, table: TableLike, keys: object) -> None:
        """Delete rows of a primary-key table by their keys."""
        await self._core.delete(await self.info_of(table), keys)

    async def overwrite(self, table: TableLike, partition: Mapping[str, Any] | None = None) -> None:
        """Empty a table, or one partition of it, in the same commit."""
        info = await self.info_of(table)
        await self._core.overwrite(info, None if partition is None else name_of(info, partition))

    async def commit(self) -> Committed:
        """Publish everything; leaving the ``with`` does it too."""
        return await self._core.commit()

    async def abort(self) -> None:
        """Publish nothing."""
        await self._core.abort()

    async def info_of(self, table: TableLike) -> TableInfo:
        """What is known of a table, by its name or its handle."""
        if isinstance(table, Table):
            return table.info
        path = TablePath.parse(table, self._database)
        known = self._infos.get(path)
        if known is None:
            known = self._infos[path] = await self._session.admin.table(path)
        return known

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self._core.commit()
        else:
            await self._core.abort()


def name_of(info: TableInfo, partition: Mapping[str, Any]) -> str:
    """The name of the partition with these values; all of its keys are needed."""
    texts = partition_texts(info.description, partition)
    return partition_name([texts[key] for key in info.description.partition_keys])
