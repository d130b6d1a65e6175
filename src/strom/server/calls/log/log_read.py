"""The result of one read of a fetch: batches as they are in the log, or rewritten; and how much memory it may take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from strom.errors import Corrupt, StromError
from strom.log.reading.slices import LogSlice
from strom.remote.slice_plan import ReadWish
from strom.runtime.files import Bytes
from strom.runtime.memory import release_arrow
from strom.server.calls.log.rewriting import BatchRewriter, rewrite
from strom.tablet.tablet import Tablet

STORED_BYTES = 1024 * 1024
"""Stored bytes read at once where batches are rewritten (filtered, completed)."""
STORED_PART = 4
"""A batch that is rewritten may have at most this part of its allowed memory as stored bytes."""


@dataclass
class ReadResult:
    """What one read found."""

    buffers: list[Bytes]
    size: int
    rows: int
    next_offset: int
    bytes_skipped: int = 0
    rows_skipped: int = 0
    needs: int = 0
    """Nothing was read: the next batch alone takes this many bytes of memory, more than allowed."""


class Read(ABC):
    """How one request reads a bucket: what it wants of the log, and what it makes of it.

    Only a single batch can make the answer larger than its bytes, and nothing makes it hold more memory than allowed.
    """

    def __call__(self, tablet: Tablet, offset: int, max_bytes: int, allowed: int) -> ReadResult:
        """Read a slice of the log that is here: bytes at most, memory allowed. Runs on the loop or in a thread."""
        wish = self.wish(max_bytes, allowed)
        try:
            found = tablet.read(
                offset,
                max_bytes=wish.max_bytes,
                until=wish.until,
                projection=wish.projection,
                skip=wish.skip,
                most=wish.most,
                gaps=wish.gaps,
            )
            return self.made(found, max_bytes, allowed)
        except Corrupt as error:
            raise self.unreadable(tablet, offset, error) from error

    @abstractmethod
    def wish(self, max_bytes: int, allowed: int) -> ReadWish:
        """What it wants of the log, wherever that is."""

    @abstractmethod
    def made(self, found: LogSlice, max_bytes: int, allowed: int) -> ReadResult:
        """What becomes of it."""

    @abstractmethod
    def unreadable(self, tablet: Tablet, offset: int, error: Corrupt) -> StromError:
        """The error of a read that met unreadable bytes."""


def plain(found: LogSlice) -> ReadResult:
    """Batches as they were read."""
    return ReadResult(
        list(found.buffers),
        found.size,
        found.rows,
        found.next_offset,
        found.bytes_skipped,
        found.rows_skipped,
        found.lacking,
    )


def rewritten(found: LogSlice, by: BatchRewriter, *, max_bytes: int, allowed: int) -> ReadResult:
    """Batches that were read, rewritten."""
    if not found.buffers:
        return plain(found._replace(lacking=STORED_PART * found.lacking))
    made = rewrite(found.buffers, by, max_bytes=max_bytes, allowed=allowed)
    if made.next_offset is None:
        next_offset, bytes_skipped, rows_skipped = found.next_offset, found.bytes_skipped, found.rows_skipped
    else:
        next_offset, bytes_skipped, rows_skipped = made.next_offset, 0, 0  # what follows is read again
    return ReadResult(
        made.buffers,
        made.size,
        made.rows,
        next_offset,
        bytes_skipped + max(made.read_bytes - made.size, 0),
        rows_skipped + made.read_rows - made.rows,
        made.needs,
    )


def plainly(read: Read, tablet: Tablet, offset: int, max_bytes: int, allowed: int) -> ReadResult:
    """Read, in a thread."""
    return read(tablet, offset, max_bytes, allowed)


def released_after(read: Read, tablet: Tablet, offset: int, max_bytes: int, allowed: int) -> ReadResult:
    """The same; what was decompressed for it is freed at once, or every thread would keep as much."""
    try:
        return read(tablet, offset, max_bytes, allowed)
    finally:
        release_arrow()


class NeverRead(Read):
    """How a bucket with an error is read."""

    def wish(self, max_bytes: int, allowed: int) -> ReadWish:
        raise AssertionError("a bucket with an error is not read")

    def made(self, found: LogSlice, max_bytes: int, allowed: int) -> ReadResult:
        raise AssertionError("a bucket with an error is not read")

    def unreadable(self, tablet: Tablet, offset: int, error: Corrupt) -> StromError:
        return error
