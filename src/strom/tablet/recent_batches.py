"""The newest small batches of a bucket, kept in memory for readers at its end.

A tailing reader wants what was just appended. Reading it back (a lookup, a read, a checksum) costs ten times more than
keeping a few kilobytes, and fifty readers want the same bytes.

Invariant: the batches kept are contiguous and end at the log's end. A batch that is too large to keep empties the
memory. The bytes were checked when they came in and are never changed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from strom.log.reading.slices import LogSlice
from strom.record.project import Projection, project_batch
from strom.runtime.files import Bytes

BATCHES_MAX = 16
BATCH_BYTES_MAX = 8 * 1024


class RecentBatch(NamedTuple):
    """One batch as it lies in the log."""

    base_offset: int
    next_offset: int
    rows: int
    schema_id: int
    content: bytes


class RecentBatches:
    """A few batches. One thread adds, any thread reads: the tuple is replaced, never changed."""

    def __init__(self) -> None:
        self._batches: tuple[RecentBatch, ...] = ()

    def add(
        self, batch: memoryview, *, base_offset: int, next_offset: int, rows: int, schema_id: int
    ) -> None:
        """Remember what was just appended."""
        if len(batch) > BATCH_BYTES_MAX:
            self._batches = ()
            return
        one = RecentBatch(base_offset, next_offset, rows, schema_id, bytes(batch))
        assert not self._batches or self._batches[-1].next_offset == base_offset
        self._batches = (*self._batches[1 - BATCHES_MAX :], one)

    def forget(self) -> None:
        """The log was cut."""
        self._batches = ()

    def read(
        self,
        offset: int,
        *,
        until: int,
        max_bytes: int,
        projection: Callable[[int], Projection | None] | None,
    ) -> LogSlice | None:
        """As ``LogReader.read``, or None when the batch that holds ``offset`` is not here."""
        batches = self._batches
        if not batches or offset < batches[0].base_offset or offset >= until:
            return None
        buffers: list[Bytes] = []
        next_offset, count, rows, size = offset, 0, 0, 0
        for one in batches:
            if one.next_offset <= offset:
                continue
            if one.base_offset >= until or (count and size >= max_bytes):
                break
            wanted = None if projection is None else projection(one.schema_id)
            pieces: list[Bytes] = [one.content] if wanted is None else project_batch(one.content, wanted)
            piece_bytes = sum(map(len, pieces))
            if count and size + piece_bytes > max_bytes:
                break
            buffers += pieces
            next_offset, count, rows, size = one.next_offset, count + 1, rows + one.rows, size + piece_bytes
        return LogSlice(buffers, next_offset, count, rows, size) if count else None
