"""The async face of a writer."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from strom.client.cluster import Cluster
from strom.client.metadata import TableInfo
from strom.client.options import WriterOptions
from strom.client.writer import Writer as Core
from strom.errors import ConnectionClosed


class Writer:
    """Appends rows in the background.

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
        self._core: Core | None = None
        self._closed = False

    def __repr__(self) -> str:
        if self._core is not None:
            return repr(self._core)
        return f"Writer({self._table.path}, {'closed' if self._closed else 'not opened yet'})"

    async def open(self) -> Core:
        """The core, opened when it is first needed."""
        if self._closed:
            raise ConnectionClosed(f"this writer of {self._table.path} is closed; open a new one")
        if self._core is None:
            self._core = await Core.open(self._cluster, self._table, self._options)
        return self._core

    @property
    def core(self) -> Core | None:
        """The core; None when it is not opened yet."""
        return self._core

    @property
    def outstanding_rows(self) -> int:
        """Rows that are not acknowledged yet."""
        return 0 if self._core is None else self._core.outstanding_rows

    async def append(self, data: object) -> None:
        """Take rows; they are safe after ``flush``. Waits when too much is on its way."""
        await (await self.open()).append(data)

    async def flush(self) -> None:
        """Wait until every row appended so far is acknowledged; raise what went wrong."""
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
