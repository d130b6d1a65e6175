"""A bucket of a log table: checks what comes in, appends it, and shows readers what is durable.

Invariants
    1. ``start_offset <= high_watermark <= end_offset``; the high watermark never falls.
    2. Under ``os`` the high watermark is the log's end, under ``group`` the end of what was synced.
    3. A batch is in the log whole and checked, or not at all.

``append`` is called by one hand at a time (the server's lane of this bucket), ``read`` by anyone, from any
thread. ``advance``, ``synced``, ``fail`` and ``pending`` belong to the server's loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from strom.errors import InvalidTimestamp, MalformedBatch, SchemaNotFound, StorageOffline, StromError
from strom.log.log import Appended, Log
from strom.log.slices import LogSlice
from strom.log.sync import SyncPoint
from strom.model.bucket import BucketId
from strom.record.batch import BatchHeader, BatchLimits, check, split
from strom.record.message import BatchColumns, ColumnLayout
from strom.record.project import Projection
from strom.tablet.pending import Pending
from strom.tablet.recent import Recent

Durability = Literal["os", "group"]
LayoutOf = Callable[[int], ColumnLayout | None]
ProjectionOf = Callable[[int], Projection | None]
Skip = Callable[[BatchHeader, memoryview], bool]

CLOCK_SKEW_MS = 60_000
"""How far ahead of the server's clock a timestamp may lie before we say that it lies in the future."""


class Accepted(NamedTuple):
    """Where the batches of one request lie: acknowledge when the high watermark is ``next_offset``."""

    base_offset: int
    next_offset: int
    rows: int
    size: int
    duplicate: bool


class LogTablet:
    """One bucket's log with its high watermark."""

    has_keys = False
    """Whether it is a bucket of a primary-key table."""

    def __init__(self, bucket: BucketId, log: Log, *, durability: Durability, limits: BatchLimits) -> None:
        self.bucket = bucket
        self.log = log
        self.durability: Durability = durability
        self.pending = Pending()
        self.recent = Recent()
        self.error: StromError | None = None
        self.closed = False
        self.bytes_since_checkpoint = 0
        self._limits = limits

    @property
    def high_watermark(self) -> int:
        """Readers see offsets below this one."""
        return self.log.synced_end if self.durability == "group" else self.log.end_offset

    @property
    def start_offset(self) -> int:
        """The oldest offset that is still there."""
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        """The offset the next row gets."""
        return self.log.end_offset

    @property
    def online(self) -> bool:
        """Whether it is served; the disk may have failed in the log's hands, without anybody being told yet."""
        return self.error is None and self.log.offline is None

    def check_online(self) -> None:
        """Raise what took the tablet offline, if anything did."""
        if self.error is not None:
            raise self.error

    # --- writing ---------------------------------------------------------------------------------------

    def append(self, records: memoryview, *, layout_of: LayoutOf, now_ms: int) -> Accepted:
        """Check every batch of ``records``, then append them. The bytes are stamped in place."""
        self.check_online()
        batches = [self._checked(header.schema_id, view, layout_of) for header, view in split(records)]
        if not batches:
            raise MalformedBatch("the request holds no batch", bucket=str(self.bucket))
        return self._append_all(batches, now_ms=now_ms, size=len(records))

    def _checked(
        self, schema_id: int, view: memoryview, layout_of: LayoutOf
    ) -> tuple[memoryview, BatchHeader, BatchColumns]:
        layout = layout_of(schema_id)
        if layout is None:
            raise SchemaNotFound(
                f"the batch names schema {schema_id}, which its table does not have", schema_id=schema_id
            )
        header, columns = check(view, layout=layout, limits=self._limits)
        if not header.append_only:
            raise MalformedBatch("a log table takes appends only, the batch carries change types")
        return view, header, columns

    def _append_all(
        self, batches: list[tuple[memoryview, BatchHeader, BatchColumns]], *, now_ms: int, size: int
    ) -> Accepted:
        results = [self._append_one(*batch, now_ms=now_ms) for batch in batches]
        return Accepted(
            base_offset=results[0].base_offset,
            next_offset=max(result.next_offset for result in results),
            rows=sum(batch[1].record_count for batch in batches),
            size=size,
            duplicate=all(result.duplicate for result in results),
        )

    def _append_one(
        self, view: memoryview, header: BatchHeader, columns: BatchColumns, *, now_ms: int
    ) -> Appended:
        result = self.log.append(view, header, columns, now_ms=now_ms)
        if not result.duplicate:
            self.recent.add(
                view,
                base_offset=result.base_offset,
                next_offset=result.next_offset,
                rows=header.record_count,
                schema_id=header.schema_id,
            )
        return result

    # --- durability ------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Tell those who wait how far the high watermark is."""
        if len(self.pending):
            self.pending.advance(self.high_watermark)

    def pending_sync(self) -> SyncPoint | None:
        """What a sync has to cover, or None when everything is durable."""
        return None if self.error is not None or self.closed else self.log.pending_sync()

    def synced(self, point: SyncPoint) -> None:
        """A sync succeeded."""
        self.log.synced(point)
        self.advance()

    def fail(self, error: StorageOffline) -> None:
        """The disk failed: from now on everyone gets ``error``."""
        if self.error is None:
            self.log.fail(error)
            self.retire(error)

    def retire(self, error: StromError) -> None:
        """The bucket is not served here any more: everyone gets ``error``."""
        if self.error is None:
            self.error = error
            self.pending.fail(error)

    def close(self) -> None:
        """Make everything durable and let go of the files; the log is opened again by a new tablet."""
        self.closed = True
        self.log.close()

    def abandon(self) -> None:
        """Let go of the files: what they hold is about to be removed."""
        self.closed = True
        self.log.abandon()

    # --- reading ---------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        until: int | None = None,
        projection: ProjectionOf | None = None,
        skip: Skip | None = None,
    ) -> LogSlice:
        """Whole batches from ``offset`` up to the high watermark (and ``until``), at least one."""
        self.check_online()
        end = self.high_watermark if until is None else min(until, self.high_watermark)
        if skip is None:
            found = self.recent.read(offset, until=end, max_bytes=max_bytes, projection=projection)
            if found is not None:
                return found
        return self.log.read(offset, until=end, max_bytes=max_bytes, projection=projection, skip=skip)

    def bytes_from(self, offset: int) -> int:
        """About how many bytes there are from ``offset`` to the end."""
        return self.log.bytes_from(offset)

    def tail_rows(self, limit: int) -> LogSlice:
        """The last batches that hold ``limit`` rows together."""
        self.check_online()
        return self.log.tail_rows(limit, until=self.high_watermark)

    def offset_at(self, timestamp_ms: int, *, now_ms: int) -> int:
        """The first offset of the first batch at or after a time, else the high watermark."""
        self.check_online()
        if timestamp_ms > now_ms + CLOCK_SKEW_MS:
            raise InvalidTimestamp(
                f"{timestamp_ms} ms lies in the future (it is {now_ms} ms); ask for the latest offset instead",
                timestamp_ms=timestamp_ms,
                now_ms=now_ms,
            )
        return min(self.log.offset_at(timestamp_ms), self.high_watermark)
