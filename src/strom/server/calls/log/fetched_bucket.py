"""One bucket of a fetch: what is wanted of it, which copy answers, and what was found."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field

from strom.errors import OffsetOutOfRange, StromError
from strom.model.bucket import BucketId
from strom.server.calls.log.log_read import Read, ReadResult
from strom.server.calls.log.reader_memory import SeenUpTo
from strom.server.tablets.table_facts import TableTraffic
from strom.server.tablets.tablet_slot import TabletSlot
from strom.tablet.tablet import Tablet


@dataclass
class FetchedBucket:
    """One bucket of a fetch, and what was found so far."""

    bucket: BucketId
    offset: int
    max_bytes: int
    read: Read
    until: int | None = None
    seen: SeenUpTo | None = None
    """What the reader saw before: answered only if this copy continues it."""
    cut: SeenUpTo | None = None
    """Where the read was planned to end: any copy that has reached it may answer."""
    costly: bool = False
    """Whether even a small read may take long (a row filter decodes)."""
    large: bool = False
    """Whether its next batch is too large for the loop."""
    starved: bool = False
    """Whether there was no memory to read on: answer with what there is."""
    traffic: TableTraffic | None = None
    earliest: bool = False
    """Whether the reader asked for the first offset there is, and nothing was found yet."""
    error: StromError | Exception | None = None
    slot: TabletSlot | None = None
    tablet: Tablet | None = None
    found: ReadResult = field(default_factory=lambda: ReadResult([], 0, 0, 0))

    def look(self) -> None:
        """Note whether the bucket is still served here."""
        if self.error is None and self.tablet is not None:
            self.error = self.tablet.error
            if self.slot is not None and self.slot.role is not None:
                try:
                    self.slot.role.check_leads()
                except StromError as error:
                    self.error = error

    def fail(self, error: Exception) -> None:
        """A read failed. If only because retention took the first rows meanwhile, the first offset is another now."""
        start = self.offset if self.tablet is None else self.tablet.readable_from
        expired = isinstance(error, OffsetOutOfRange) and start > self.offset and not self.moved
        if self.earliest and expired:
            self.offset = self.found.next_offset = start
        else:
            self.error = error

    def count(self) -> None:
        """Count what leaves, in the table's metrics."""
        if self.traffic is not None and self.moved:
            self.traffic.rows_out.inc(self.found.rows)
            self.traffic.bytes_out.inc(self.found.size)
            self.traffic.bytes_skipped.inc(self.found.bytes_skipped)
            if self.slot is not None and self.slot.follows:
                self.traffic.bytes_followed.inc(self.found.size)

    def place(self) -> Tablet | Awaitable[Tablet]:
        """The tablet to read; raises NotLeader where another server has to be asked."""
        assert self.slot is not None
        return self.slot.opened() if self.cut is None else self.slot.pinned(self.cut.offset)

    @property
    def is_past(self) -> bool:
        """Whether what comes next is not on this disk any more."""
        return self.tablet is not None and self.found.next_offset < self.tablet.log.start_offset

    @property
    def moved(self) -> bool:
        """Whether there is something to answer: rows, or batches that need not be read again."""
        return self.found.next_offset > self.offset

    @property
    def ended(self) -> bool:
        """Whether everything requested has been found."""
        return self.until is not None and max(self.offset, self.found.next_offset) >= self.until
