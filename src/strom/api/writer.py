"""The blocking API of a writer."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from strom import aio
from strom.client.cluster.blocking import Background
from strom.client.cluster.closing import closing_after
from strom.client.cluster.written import WrittenTo


class Writer:
    """Writes rows: batched, compressed and sent in the background, in order, each once.

    A log table's writer appends; a primary-key table's upserts and deletes. Each returns as soon as the rows are taken.
    It waits while ``memory_bytes`` are on their way, and up to a second for the oldest answer while five of its batches
    are unanswered. A failed write is raised by the next one, by ``flush`` and by ``close``. Several threads may share a
    writer.

    >>> with table.writer(compression="lz4") as writer:
    ...     for frame in frames:
    ...         writer.append(frame)
    """

    __slots__ = ("_background", "_core")

    def __init__(self, background: Background, core: aio.Writer) -> None:
        self._background = background
        self._core = core

    def __repr__(self) -> str:
        return repr(self._core)

    @property
    def outstanding_rows(self) -> int:
        """Rows that are not acknowledged yet.

        >>> writer.outstanding_rows
        0
        """
        return self._core.outstanding_rows

    def append(self, data: object) -> None:
        """Take rows: anything that ``Table.append`` takes.

        >>> writer.append(pa.table({"id": [1, 2, 3]}))
        """
        core = self._core
        with core.thread_turn:
            self._background.drive(core.append_steps(data))

    def upsert(self, data: object, columns: Sequence[str] | None = None) -> None:
        """Take rows of a primary-key table: anything that ``Table.upsert`` takes.

        >>> writer.upsert([{"id": 1, "name": "ann"}])
        """
        core = self._core
        with core.thread_turn:
            self._background.drive(core.upsert_steps(data, columns))

    def delete(self, keys: object) -> None:
        """Delete the rows of these keys: anything that ``Table.delete`` takes.

        >>> writer.delete([1, 2])
        """
        core = self._core
        with core.thread_turn:
            self._background.drive(core.delete_steps(keys))

    def change(
        self, rows: pa.RecordBatch, kinds: pa.UInt8Array, columns: Sequence[str] | None = None
    ) -> None:
        """Upsert and delete rows of a primary-key table in the order they are given: ``kinds`` is 3 or 4 for each.

        >>> writer.change(batch, pa.array([3, 4, 3], pa.uint8()))
        """
        core = self._core
        with core.thread_turn:
            self._background.drive(core.change_steps(rows, kinds, columns))

    @property
    def written(self) -> WrittenTo:
        """What was acknowledged, by bucket: give it to ``at_least=`` of a lookup, here or elsewhere.

        >>> table.lookup(1, at_least=writer.written)
        """
        return self._core.written

    def flush(self) -> None:
        """Wait until every row given so far is acknowledged; raise a failure since the last flush.

        >>> writer.flush()
        """
        mark = self.seal()
        if not self._core.flushed_directly(mark):
            self._background.run(self._core.flushed(mark))

    def seal(self) -> int:
        """Encode what is gathered, in this thread. Gives the mark that ``flush`` waits for."""
        with self._core.thread_turn:
            return self._core.seal_from_thread()

    def close(self) -> None:
        """Flush and finish; raise a failure. The second time does nothing.

        >>> writer.close()
        """
        self.seal()
        self._background.run(self._core.close())

    def __enter__(self) -> Writer:
        self._background.run(self._core.open())
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with closing_after(error, "the writer"):
            self.close()
