"""Batches that are rewritten before they are sent: filtered, or completed with columns they lack.

Stored bytes say little about what that takes: a few kilobytes may decompress to a hundred megabytes. So the size that
each batch declares is checked first, and a batch that would take more than allowed is left for a call that may have
more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from strom.errors import Corrupt
from strom.record.batch import BatchHeader, read_header, split
from strom.runtime.files import Bytes


class BatchRewriter(Protocol):
    """Rewrites batches."""

    def weight(self, header: BatchHeader, view: memoryview) -> int:
        """Rough upper bound of the bytes that ``rewritten`` holds, before it makes any of them."""

    def rewritten(self, header: BatchHeader, view: memoryview) -> list[Bytes] | None:
        """The batch to send, in pieces; None for nothing."""


class RewrittenBatches(NamedTuple):
    """The result of rewriting some batches."""

    buffers: list[Bytes]
    size: int
    rows: int
    read_bytes: int
    """Stored bytes of the batches that were looked at."""
    read_rows: int
    next_offset: int | None
    """Where to go on if some batches are left; None if not."""
    needs: int
    """How much the first batch needs, if that is more than allowed."""


def rewrite(buffers: Sequence[Bytes], by: BatchRewriter, *, max_bytes: int, allowed: int) -> RewrittenBatches:
    """Rewrite batches until there are ``max_bytes``, holding no more than ``allowed`` at any time.

    An unreadable batch ends them before it; if it is the first, its error is raised, with its offsets.
    """
    found: list[Bytes] = []
    size = rows = read_bytes = read_rows = 0
    stored = sum(map(len, buffers))
    whole = memoryview(buffers[0]) if len(buffers) == 1 else memoryview(b"".join(buffers))
    for header, view in split(whole):
        try:
            needs = stored + size + by.weight(header, view)
            fits = needs <= allowed and size < max_bytes
            pieces = by.rewritten(header, view) if fits else None
        except Corrupt as error:
            if not read_bytes:
                error.facts |= {"first_offset": header.base_offset, "end_offset": header.next_offset}
                raise
            fits = False
        if not fits:
            needs = 0 if read_bytes else needs
            return RewrittenBatches(found, size, rows, read_bytes, read_rows, header.base_offset, needs)
        read_bytes += header.size
        read_rows += header.record_count
        if pieces:
            rows += read_header(pieces[0]).record_count
            size += sum(map(len, pieces))
            found += pieces if 2 * header.size > stored else _alone(pieces, whole)
    return RewrittenBatches(found, size, rows, read_bytes, read_rows, None, 0)


def _alone(pieces: list[Bytes], whole: memoryview) -> list[Bytes]:
    """A copy without the rest of what was read: a batch that is sent as it is would keep all of it in memory."""
    if any(isinstance(one, memoryview) and one.obj is whole.obj for one in pieces):
        return [b"".join(pieces)]
    return pieces
