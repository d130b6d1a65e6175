"""One bucket on one server: its log, its high watermark, the waits for it, its stages.

This is what buckets of log tables and of primary-key tables have in common; ``log_tablet.py`` and ``key_tablet.py`` add
how rows come in and what else is kept of them.

Invariants
    1. ``start_offset <= high_watermark <= end_offset``; the high watermark never falls, except to where it is held.
    2. Under ``os`` the high watermark is the log's end, under ``group`` the end of what was synced; ``hold`` keeps it
       lower.
    3. A batch is in the log whole and checked, or not at all.
    4. One copy of several (a log without epochs of its own) begins as a follower: nobody writes to it, and its high
       watermark is its base, until it is told of a higher one.

Threads. What writes (``stage_piece``, ``drop_stages``, ``apply``, ``release``, ``truncate``, ``mark_damaged``,
``close``) is called by one thread at a time, in the server's lane of this bucket; what reads, by any thread.
``advance``, ``raise_high``, ``synced``, ``fail`` and ``pending`` belong to the server's loop. Staging: stages.py.
Publishing: publishing.py. One copy of several: bucket_copy.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa

from strom.errors import InvalidTimestamp, NotLeader, OffsetOutOfRange, StorageOffline, StromError
from strom.log.copies.following import PulledBatch
from strom.log.log import Appended, Log
from strom.log.reading.slices import BATCH_BYTES_ANY, LogSlice, ProjectionOf, Skip
from strom.log.sync import SyncPoint
from strom.model.bucket import BucketId
from strom.record.batch import BatchHeader, BatchLimits, Checked, read_columns, read_header
from strom.record.encode import encode
from strom.replication.divergence import EpochHistory
from strom.tablet.copies.base_copy import HeldBase
from strom.tablet.copies.bucket_copy import BucketCopy
from strom.tablet.copies.pull_answer import history_of
from strom.tablet.pending import Pending
from strom.tablet.publishing import Applied, Commit, LogCut, PieceForm, PieceWriter, apply_commits, cut_at
from strom.tablet.recent_batches import RecentBatches
from strom.tablet.stages import LateStage, StagePiece, StageState, StageStore

Durability = Literal["os", "group"]

_NO_ROWS = pa.record_batch([], names=[])

CLOCK_SKEW_MS = 60_000
"""How far ahead of the server's clock a timestamp may lie before it is refused as lying in the future."""


class Accepted(NamedTuple):
    """Where the batches of one request lie: acknowledge when the high watermark is ``next_offset``."""

    base_offset: int
    next_offset: int
    rows: int
    size: int
    duplicate: bool


class PastRange(NamedTuple):
    """The offsets of a bucket that the object store has."""

    start: int
    end: int


class Tablet:
    """One bucket's log with its high watermark."""

    has_keys = False
    """Whether it is a bucket of a primary-key table."""
    reads_disk = False
    """Whether finding a key may have to read from the disk: not on a loop that others wait for."""
    pieces: PieceWriter
    """How staged rows are checked and published."""

    def __init__(
        self,
        bucket: BucketId,
        log: Log,
        *,
        durability: Durability,
        limits: BatchLimits,
        stages: StageStore | None = None,
    ) -> None:
        self.bucket = bucket
        self.log = log
        self.durability: Durability = durability
        self.limits = limits
        self.pending = Pending()
        self.recent = RecentBatches()
        self.error: StromError | None = None
        """Why the bucket is not served here any more."""
        self.refused: StromError | None = None
        """Why nothing is written here, though what is there can be read (tablet/lake_check.py)."""
        self.closed = False
        self.bytes_since_checkpoint = 0
        self.replicated = not log.own_epochs
        """Whether it is one copy of several."""
        self.leading = not self.replicated
        """Whether clients may write here."""
        self.copy = BucketCopy(self)
        """What it does as one copy of several."""
        self.past: PastRange | None = None
        """What the object store has of it; None: nothing, or nobody has looked. Reads of it do not come here."""
        self.moved: Callable[[], None] | None = None
        """Called by ``advance``: the end, or what is durable, may have moved."""
        self.keep_from: int | None = None
        """The log is kept from here on, for followers."""
        self._stages = stages
        self._held: int | None = None
        self._stable: int | None = None
        if self.replicated:
            self._held = log.start_offset
            log.keep_groups_from(log.start_offset)

    # --- facts -----------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """Readers see offsets below this one: durable as promised, and not above where it is held."""
        log, held = self.log, self._held
        high = log.synced_end if self.durability == "group" else log.end_offset
        return high if held is None or high < held else held

    @property
    def settled(self) -> int:
        """Below this nothing is ever taken back, even if all copies lose power: what is derived may build on it."""
        high, stable = self.high_watermark, self._stable
        return high if stable is None or high <= stable else max(stable, self.base_offset)

    @property
    def base_offset(self) -> int:
        """Below this the log is not needed to know what the bucket holds; it cannot be cut below."""
        return self.log.start_offset

    @property
    def base_bytes(self) -> int:
        """About how many bytes of the log a copy need not take in that begins with the base."""
        start, rows = self.log.start_offset, self.log.end_offset - self.log.start_offset
        return self.bytes_from(start) * (self.base_offset - start) // max(1, rows)

    @property
    def start_offset(self) -> int:
        """The oldest offset that is still there."""
        return self.log.start_offset

    @property
    def readable_from(self) -> int:
        """The oldest offset that can be read: here, or in the object store."""
        start, past = self.log.start_offset, self.past
        if past is None or not past.start < start <= past.end:
            return start
        return max(past.start, self.pieces.emptied_at(self.high_watermark))

    @property
    def end_offset(self) -> int:
        """The offset the next row gets."""
        return self.log.end_offset

    @property
    def online(self) -> bool:
        """Whether it is served. False also if the log found the disk broken and nobody was told yet."""
        return self.error is None and self.log.offline is None

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record at ``offset`` - 1, -1 when there is none."""
        return self.log.epochs.epoch_of(offset - 1)

    def check_online(self) -> None:
        """Raise what took the tablet offline, if anything did."""
        if self.error is not None:
            raise self.error

    def check_writable(self) -> None:
        """Raise what prevents writes, if anything does."""
        self.check_online()
        if not self.leading:
            raise NotLeader(
                f"this server only follows the leader of bucket {self.bucket}", bucket=str(self.bucket)
            )
        if self.refused is not None:
            raise self.refused

    # --- writing (in the lane) -------------------------------------------------------------------------

    def append_batch(self, view: memoryview, checked: Checked, *, now_ms: int) -> Appended:
        """Append one checked batch to the log, to the open group if there is one."""
        header = checked.header
        result = self.log.append(view, checked, now_ms=now_ms)
        if not result.duplicate:
            self.remember_recent(view, header, result.base_offset, result.next_offset)
        return result

    def remember_recent(
        self, view: memoryview, header: BatchHeader, base_offset: int, next_offset: int
    ) -> None:
        self.recent.add(
            view,
            base_offset=base_offset,
            next_offset=next_offset,
            rows=header.record_count,
            schema_id=header.schema_id,
        )

    def append_empty(self, schema_id: int, *, now_ms: int, changes: bytes | None = None) -> int:
        """Append a batch without records, which takes one offset; its size. ``changes``: b"" in a changelog."""
        batch = encode(_NO_ROWS, schema_id=schema_id, changes=changes)
        header = read_header(batch)
        self.append_batch(
            memoryview(batch), Checked(header, read_columns(batch, header), None), now_ms=now_ms
        )
        return header.size

    def hold(self, high_watermark: int | None) -> None:
        """Keep the high watermark at or below an offset (what followers have); None releases it."""
        self._held = high_watermark

    def truncate(self, to: int) -> int:
        """Cut the bucket so that it ends at or before ``to`` (not below the high watermark); returns the new end.

        A new epoch begins.
        """
        self.check_online()
        high = self.high_watermark
        if to < high:
            raise OffsetOutOfRange(
                f"cannot cut at {to}: readers have seen everything below the high watermark {high}",
                offset=to,
                high=high,
            )
        end = self.log.truncate(to)
        self.was_cut(end)
        return end

    def was_cut(self, end: int) -> None:
        """The log was cut at ``end``: forget what is kept beside it of the rest."""
        self.recent.forget()

    # --- one copy of several ---------------------------------------------------------------------------

    def lower_high(self, high: int) -> None:
        """Committed rows from ``high`` on were declared lost (R10)."""
        if self._held is not None:
            self._held = min(self._held, high)

    def drop_unsealed(self) -> None:
        """Remove the stages that are not sealed: their writers start over, at another server."""
        if self._stages is not None:
            self._stages.drop_open()

    def history(self) -> EpochHistory:
        """Which epochs wrote this copy, to compare it with another (R8)."""
        return history_of(self.log, self.log.epochs.starts)

    def standby(self, batches: Sequence[PulledBatch]) -> Callable[[int], None]:
        """How to take each of these batches, once it is in the log, into what is kept beside it. In the lane."""
        return lambda number: None

    def held_base(self) -> HeldBase:
        """What a follower needs that has to begin where the log starts, with its files open. In the lane."""
        start = self.log.start_offset
        return HeldBase(start, 0, self.log.base_files(from_offset=start, until=start))

    def broken(self, what: str) -> StorageOffline:
        """Serve nothing from here on. For the lane; the loop then fails the waits (``fail``)."""
        error = StorageOffline(f"bucket {self.bucket}: {what}; it recovers when it is reopened")
        self.log.fail(error)
        return error

    # --- staging and publishing (in the lane) ----------------------------------------------------------

    @property
    def stages(self) -> StageStore:
        """Rows that are written here and not published."""
        assert self._stages is not None, "this tablet was opened without stages"
        return self._stages

    @property
    def has_stages(self) -> bool:
        """Whether rows are written here and not published."""
        return self._stages is not None and len(self._stages) > 0

    @property
    def keeps_seals(self) -> bool:
        """Whether a sealed stage survives power loss."""
        return self.durability == "group"

    def stage_piece(self, piece: StagePiece, *, form: PieceForm, now_ms: int) -> StageState:
        """Add a piece to a stage, checked as an append is; sealed, it is durable when ``StageState.seal`` is."""
        self.check_writable()
        rows = self.pieces.check(piece, form) if self.stages.expects(piece) else 0
        return self.stages.add(piece, rows, now_ms)

    def drop_stages(self, stage_ids: Collection[bytes]) -> int:
        """Free stages that nobody will publish."""
        return self.stages.drop(stage_ids)

    def late_stages(self, now_ms: int) -> list[LateStage]:
        """Sealed stages whose lease is over; those that were never sealed go at once."""
        self.stages.drop_unsealed(now_ms)
        return self.stages.late(now_ms)

    @property
    def applied(self) -> int:
        """The number of the newest decision whose group is visible."""
        return self.log.groups.applied(self.high_watermark)

    def apply(self, commits: Sequence[Commit], *, form: PieceForm, now_ms: int) -> Applied:
        """Publish decisions in the order of their numbers, each as one group; those applied before are skipped.

        They are applied when the high watermark is ``Applied.end_offset``; call ``release`` then.
        """
        self.check_writable()
        return apply_commits(self, commits, form=form, now_ms=now_ms)

    def release(self, commits: Sequence[Commit]) -> int:
        """Free the stages of decisions whose groups are as durable as promised; returns how many."""
        applied = self.applied
        gone = [one for commit in commits if commit.origin.number <= applied for one in commit.stages]
        self.drop_overwritten()
        return self.stages.drop(gone)

    def drop_overwritten(self) -> None:
        """Remove what a visible group has overwritten."""
        start = self.pieces.emptied_at(self.high_watermark)
        if start > self.log.start_offset:
            self.log.drop_before(min(start, self.droppable()))

    def droppable(self, needed_from: int | None = None) -> int:
        """Up to where the log may be dropped: settled, synced here, and needed by nobody (``needed_from``: others)."""
        bounds = [self.settled]
        if self.replicated:
            bounds.append(self.log.synced_end)
        others = (needed_from, self.keep_from, self.copy.bases.keep_from)
        return min([*bounds, *(bound for bound in others if bound is not None)])

    def expendable(self, now_ms: int) -> int:
        """Up to where the log is not needed here for anything but to be read."""
        return self.droppable()

    def cut(self, number: int | None) -> LogCut:
        """What a read that was planned at a decision's number sees; without a number, whatever is visible."""
        self.check_online()
        return cut_at(self, number)

    def take_back(self) -> None:
        """Take back the open group."""
        self.was_cut(self.log.abort_group())

    # --- durability ------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Wake the waits that the high watermark has reached."""
        if self.moved is not None:
            self.moved()
        if len(self.pending):
            self.pending.advance(self.high_watermark)

    def raise_high(self, high: int, stable: int | None = None) -> None:
        """Everything below ``high`` is committed; below ``stable`` it is on the disks of all who count (R6).

        Neither ever falls. Only for one copy of several, on the loop.
        """
        if self._held is not None and high > self._held:
            self._held = high
            self.log.keep_groups_from(high)
        if stable is not None:
            self._stable = max(stable, self._stable or 0)
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
        """The disk failed: every call and wait gets ``error`` from now on."""
        if self.error is None:
            self.log.fail(error)
            self.retire(error)

    def retire(self, error: StromError) -> None:
        """The bucket is no longer served here: every call and wait gets ``error``."""
        if self.error is None:
            self.error = error
            self.pending.fail(error)
            if self._stages is not None:
                self._stages.fail(error)

    def close(self) -> None:
        """Make everything durable and release the files; a new tablet may then open the log."""
        self.closed = True
        if self._stages is not None:
            self._stages.close()
        self.log.close()

    def abandon(self) -> None:
        """Release the files: they are about to be removed."""
        self.closed = True
        if self._stages is not None:
            self._stages.close()
        self.log.abandon()

    # --- what is given up (in the lane) ----------------------------------------------------------------

    def mark_damaged(self, start: int, end: int, *, schema_id: int, take_back: bool, now_ms: int) -> None:
        """Mark the batches that hold offsets of [start, end) as damaged, or take such marks back."""
        if take_back:
            self.log.unmark_damaged(start, end)
        else:
            self.log.mark_damaged(start, end, schema_id=schema_id, now_ms=now_ms)
        self.recent.forget()

    # --- reading ---------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        until: int | None = None,
        projection: ProjectionOf | None = None,
        skip: Skip | None = None,
        most: int = BATCH_BYTES_ANY,
        gaps: bool = True,
    ) -> LogSlice:
        """Whole batches from ``offset`` up to the high watermark (and ``until``); at least one, if it fits ``most``.

        ``gaps``: see ``LogReader.read``.
        """
        self.check_online()
        end = self.high_watermark if until is None else min(until, self.high_watermark)
        if skip is None:
            found = self.recent.read(offset, until=end, max_bytes=max_bytes, projection=projection)
            if found is not None:
                return found
        return self.log.read(
            offset,
            until=end,
            max_bytes=max_bytes,
            projection=projection,
            skip=skip,
            most=most,
            gaps=gaps,
        )

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
                f"{timestamp_ms} ms lies in the future (it is {now_ms} ms); use the latest offset instead",
                timestamp_ms=timestamp_ms,
                now_ms=now_ms,
            )
        return min(self.log.offset_at(timestamp_ms), self.high_watermark)
