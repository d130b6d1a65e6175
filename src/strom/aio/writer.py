"""The async face of a writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import WriterOptions
from strom.client.cluster.written import WrittenTo
from strom.client.write.append_writer import AppendWriter
from strom.client.write.key_writer import KeyWriter
from strom.client.write.row_writer import RowWriter
from strom.errors import ConnectionClosed, NotPrimaryKeyTable


class Writer:
    """Writes rows in the background: appends to a log table, upserts to and deletes from a primary-key table.

    >>> async with table.writer(compression="lz4") as writer:
    ...     await writer.append({"id": [1, 2, 3]})
    """

    def __init__(
        self,
        cluster: Cluster,
        table: TableInfo,
        options: WriterOptions,
        *,
        on_close: Callable[[Writer], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._table = table
        self._options = options
        self._on_close = on_close
        self._core: RowWriter | None = None
        self._closed = False

    def __repr__(self) -> str:
        if self._core is not None:
            return repr(self._core)
        return f"Writer({self._table.path}, {'closed' if self._closed else 'not opened yet'})"

    async def open(self) -> RowWriter:
        """The core, opened when it is first needed."""
        if self._closed:
            raise ConnectionClosed(f"this writer of {self._table.path} is closed; open a new one")
        if self._core is None:
            keyed = self._table.description.has_primary_key
            kind: type[KeyWriter] | type[AppendWriter] = KeyWriter if keyed else AppendWriter
            self._core = await kind.open(self._cluster, self._table, self._options)
        return self._core

    async def open_for_appends(self) -> AppendWriter:
        """The core of a log table's writer; NotPrimaryKeyTable for any other."""
        core = await self.open()
        if not isinstance(core, AppendWriter):
            raise NotPrimaryKeyTable(
                f"{self._table.path} is a primary-key table: rows are upserted, not appended"
            )
        return core

    async def open_for_upserts(self) -> KeyWriter:
        """The core of a primary-key table's writer; NotPrimaryKeyTable for any other."""
        core = await self.open()
        if not isinstance(core, KeyWriter):
            raise NotPrimaryKeyTable(f"{self._table.path} is a log table: rows are appended, not upserted")
        return core

    @property
    def core(self) -> RowWriter | None:
        """The core; None when it is not opened yet."""
        return self._core

    @property
    def outstanding_rows(self) -> int:
        """Rows that are not acknowledged yet."""
        return 0 if self._core is None else self._core.outstanding_rows

    async def append(self, data: object) -> None:
        """Take rows; they are safe after ``flush``. Waits when too much is on its way."""
        await (await self.open_for_appends()).append(data)

    async def upsert(self, data: object, columns: Sequence[str] | None = None) -> None:
        """Take rows of a primary-key table: new keys are inserted, others updated (only ``columns``, when given)."""
        await (await self.open_for_upserts()).upsert(data, columns)

    async def delete(self, keys: object) -> None:
        """Delete the rows of these keys."""
        await (await self.open_for_upserts()).delete(keys)

    @property
    def written(self) -> WrittenTo:
        """What was acknowledged, by bucket: for ``at_least=`` of a lookup."""
        return self._core.written if isinstance(self._core, KeyWriter) else {}

    async def flush(self) -> None:
        """Wait until every row given so far is acknowledged; raise what went wrong."""
        if self._core is not None:
            await self._core.flush()

    async def close(self) -> None:
        """Flush and finish; raise what went wrong."""
        self._closed = True
        try:
            if self._core is not None:
                await self._core.close()
        finally:
            if self._on_close is not None:
                self._on_close(self)

    async def abandon(self) -> None:
        """Finish without waiting for rows that are on their way."""
        self._closed = True
        if self._core is not None:
            await self._core.abandon()

    async def __aenter__(self) -> Writer:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"and the writer could not be closed: {failure}")
