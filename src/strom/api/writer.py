"""The blocking face of a writer."""

from __future__ import annotations

import threading
from types import TracebackType

from strom import aio
from strom.client.blocking import Background


class Writer:
    """Appends rows: batched, compressed and sent in the background, in order, each once.

    ``append`` returns as soon as the rows are taken, and waits while ``memory_bytes`` are on their way. A failed write
    is raised by the next ``append``, by ``flush`` and by ``close``. Several threads may append to one writer.

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
            core = self._background.run(self._face.open()) if self._face.core is None else self._face.core
            for need in core.steps(data):
                self._background.run_awaitable(need)

    def flush(self) -> None:
        """Wait until every row appended so far is acknowledged; raise what went wrong since the last flush.

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
