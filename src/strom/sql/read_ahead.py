"""A thread that fetches hot rows before DuckDB asks for them.

DuckDB's threads that ask for rows wait for one another: without this, all of them would be idle while a server answers,
and none would read lake files meanwhile. The thread pauses while ``BYTES_MAX`` are ready.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterator

import pyarrow as pa

from strom.errors import InvalidQuery

BYTES_MAX = 32 * 1024 * 1024
"""Upper bound of what is ready, roughly."""


class ReadAhead:
    """The batches of a source; reading starts at once. For one reader, which may come later, or never."""

    def __init__(self, source: Generator[pa.RecordBatch, None, None]) -> None:
        self._changed = threading.Condition()
        self._ready: deque[pa.RecordBatch] = deque()
        self._bytes = 0
        self._ended = self._left = False
        self._problem: BaseException | None = None
        threading.Thread(target=self._fetch, args=(source,), name="strom-ahead", daemon=True).start()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All batches; an error of the source is raised after the batches before it."""
        try:
            while (batch := self._next()) is not None:
                yield batch
        finally:
            self.close()

    def close(self) -> None:
        """Drop what is ready, and close the source as soon as it yields."""
        with self._changed:
            self._left = True
            self._ready.clear()
            self._changed.notify_all()

    def _next(self) -> pa.RecordBatch | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._ended or self._left)
            if self._left:  # what was ready is gone: ending here would look like the end of the rows
                raise InvalidQuery("this query was closed while it was read")
            if self._ready:
                batch = self._ready.popleft()
                self._bytes -= batch.nbytes
                self._changed.notify_all()
                return batch
            if self._problem is not None:
                raise self._problem
            return None

    def _fetch(self, source: Generator[pa.RecordBatch, None, None]) -> None:
        try:
            for batch in source:
                if not self._put(batch):
                    break
            source.close()
        except BaseException as problem:
            self._problem = problem
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _put(self, batch: pa.RecordBatch) -> bool:
        """Whether the reader still wants more."""
        with self._changed:
            self._changed.wait_for(lambda: self._left or self._bytes < BYTES_MAX)
            if not self._left:
                self._ready.append(batch)
                self._bytes += batch.nbytes
                self._changed.notify_all()
            return not self._left
