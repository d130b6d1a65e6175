"""The blocking face of a writer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType

import pyarrow as pa

from strom import aio
from strom.client.cluster.blocking import Background
from strom.client.cluster.written import WrittenTo
from strom.client.write.append_writer import AppendWriter
from strom.client.write.key_writer import KeyWriter


class Writer:
    """Writes rows: batched, compressed and sent in the background, in order, each once.

    A log table's writer appends; a primary-key table's upserts and deletes. Each returns as soon as the rows are taken.
    It waits while ``memory_bytes`` are on their way, and up to a second for the oldest answer while five batches are
    unanswered that it sent itself. A failed write is raised by the next one, by ``flush`` and by ``close``. Several
    threads may share a writer.

    >>> with table.writer(compression="lz4") as writer:
    ...     for frame in frames:
    ...         writer.append(frame)
    """

    def __init__(self, background: Background, face: aio.Writer) -> None:
        self._background = background
        self._face = face
        self._turn = threading.Lock()

    def __repr__(self) -> str:
        return repr(self._face)

    @property
    def outstanding_rows(self) -> int:
        """Rows that are not acknowledged yet.

        >>> writer.outstanding_rows
        0
        """
        return self._face.outstanding_rows

    def append(self, data: object) -> None:
        """Take rows: anything that ``Table.append`` takes.

        >>> writer.append(pa.table({"id": [1, 2, 3]}))
        """
        with self._turn:
            core = self._face.core
            if not isinstance(core, AppendWriter):
                core = self._background.run(self._face.open_for_appends())
            for need in core.steps(data):
                self._background.run_awaitable(need)

    def upsert(self, data: object, columns: Sequence[str] | None = None) -> None:
        """Take rows of a primary-key table: anything that ``Table.upsert`` takes.

        >>> writer.upsert([{"id": 1, "name": "ann"}])
        """
        with self._turn:
            for need in self._key_core().upsert_steps(data, columns):
                self._background.run_awaitable(need)

    def delete(self, keys: object) -> None:
        """Delete the rows of these keys: anything that ``Table.delete`` takes.

        >>> writer.delete([1, 2])
        """
        with self._turn:
            for need in self._key_core().delete_steps(keys):
                self._background.run_awaitable(need)

    def change(
        self, rows: pa.RecordBatch, kinds: pa.UInt8Array, columns: Sequence[str] | None = None
    ) -> None:
        """Upsert and delete rows of a primary-key table in the order they are given: ``kinds`` is 3 or 4 for each.

        >>> writer.change(batch, pa.array([3, 4, 3], pa.uint8()))
        """
        with self._turn:
            for need in self._key_core().change_steps(rows, kinds, columns):
                self._background.run_awaitable(need)

    @property
    def written(self) -> WrittenTo:
        """What was acknowledged, by bucket: give it to ``at_least=`` of a lookup, here or elsewhere.

        >>> table.lookup(1, at_least=writer.written)
        """
        return self._face.written

    def _key_core(self) -> KeyWriter:
        core = self._face.core
        return core if isinstance(core, KeyWriter) else self._background.run(self._face.open_for_upserts())

    def flush(self) -> None:
        """Wait until every row given so far is acknowledged; raise what went wrong since the last flush.

        >>> writer.flush()
        """
        core = self._face.core
        if core is not None:
            mark = self.seal()
            if not core.flushed_directly(mark):
                self._background.run(core.flushed(mark))

    def seal(self) -> int:
        """The part of a flush that is done by this thread."""
        core = self._face.core
        with self._turn:
            return 0 if core is None else core.seal_from_thread()

    def close(self) -> None:
        """Flush and finish; raise what went wrong. The second time does nothing.

        >>> writer.close()
        """
        self.seal()
        self._background.run(self._face.close())

    def __enter__(self) -> Writer:
        if self._face.core is None:
            self._background.run(self._face.open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"and the writer could not be closed: {failure}")
