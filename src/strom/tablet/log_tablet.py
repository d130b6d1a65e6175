"""A bucket of a log table: checks what comes in, appends it, and shows readers what is durable.

Invariants
    1. ``start_offset <= high_watermark <= end_offset``; the high watermark never falls.
    2. Under ``os`` the high watermark is the log's end, under ``group`` the end of what was synced.
    3. A batch is in the log whole and checked, or not at all.

``append``, ``stage_piece``, ``drop_stages``, ``apply`` and ``release`` are called by one hand at a time (the server's
lane of this bucket), ``read`` by anyone, from any thread. ``advance``, ``synced``, ``fail`` and ``pending`` belong to
the server's loop. Staging and publishing: stages.py, groups.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa

from strom.errors import InvalidTimestamp, MalformedBatch, SchemaNotFound, StorageOffline, StromError
from strom.log.layout import WHOLE_BATCH_BYTES_MAX
from strom.log.log import Appended, Log
from strom.log.reading.slices import BATCH_BYTES_ANY, LogSlice
from strom.log.sync import SyncPoint
from strom.model.bucket import BucketId
from strom.record.batch import (
    BatchHeader,
    BatchLimits,
    Checked,
    check_and_sum,
    read_columns,
    read_header,
    split,
    strike_statistics,
)
from strom.record.encode import encode
from strom.record.message import ColumnLayout
from strom.record.project import Projection
from strom.tablet.groups import Applied, Commit, LogCut, PieceForm, apply_commits, cut_at
from strom.tablet.pending import Pending
from strom.tablet.recent import RecentBatches
from strom.tablet.stage_file import StagedBatches
from strom.tablet.stages import LateStage, StagePiece, StageState, StageStore

Durability = Literal["os", "group"]
LayoutOf = Callable[[int], ColumnLayout | None]
ProjectionOf = Callable[[int], Projection | None]
Skip = Callable[[BatchHeader, memoryview], bool]

logger = logging.getLogger(__name__)

_NO_ROWS = pa.record_batch([], names=[])

PROVING = 8
"""So many batches have to prove their statistics before a bucket looks only at every eighth: looking at all costs a
bulk load a fifth of its pace."""
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
        self._stages = stages
        self.durability: Durability = durability
        self.pending = Pending()
        self.recent = RecentBatches()
        self.error: StromError | None = None
        self.refused: StromError | None = None
        """Why nothing is written here, though what is there can be read (tablet/lake.py)."""
        self.closed = False
        self.bytes_since_checkpoint = 0
        self._limits = limits
        self._struck_noted = False
        self._looked_at = 0

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

    def check_writable(self) -> None:
        """Raise what keeps anybody from writing, if anything does."""
        self.check_online()
        if self.refused is not None:
            raise self.refused

    # --- writing ---------------------------------------------------------------------------------------

    def append(self, records: memoryview, *, layout_of: LayoutOf, now_ms: int) -> Accepted:
        """Check every batch of ``records``, then append them. The bytes are stamped in place."""
        self.check_writable()
        batches = [self._checked(header.schema_id, view, layout_of) for header, view in split(records)]
        if not batches:
            raise MalformedBatch("the request holds no batch", bucket=str(self.bucket))
        return self._append_all(batches, now_ms=now_ms, size=len(records))

    def _checked(self, schema_id: int, view: memoryview, layout_of: LayoutOf) -> tuple[memoryview, Checked]:
        layout = layout_of(schema_id)
        if layout is None:
            raise SchemaNotFound(
                f"the batch names schema {schema_id}, which its table does not have", schema_id=schema_id
            )
        checked = check_and_sum(
            view,
            layout=layout,
            limits=self._limits,
            sum_from=WHOLE_BATCH_BYTES_MAX,
            statistics=self._looks_at_statistics(),
        )
        if not checked.header.append_only:
            raise MalformedBatch("a log table takes appends only, the batch carries change types")
        if not checked.statistics_hold:
            checked = checked._replace(header=strike_statistics(view, checked.header))
            self._note_struck()
        return view, checked

    def _looks_at_statistics(self) -> bool:
        """Whether the next batch is held against its own statistics: the first ones, some later, all once one lied."""
        self._looked_at += 1
        return self._struck_noted or self._looked_at <= PROVING or self._looked_at % PROVING == 0

    def _note_struck(self) -> None:
        if not self._struck_noted:
            self._struck_noted = True
            logger.warning(
                "%s: a writer sends batches with values outside their own statistics; "
                "the statistics are struck out, filtered reads take longer there",
                self.bucket,
            )

    def _append_all(self, batches: list[tuple[memoryview, Checked]], *, now_ms: int, size: int) -> Accepted:
        results = [self._append_one(*batch, now_ms=now_ms) for batch in batches]
        return Accepted(
            base_offset=results[0].base_offset,
            next_offset=max(result.next_offset for result in results),
            rows=sum(checked.header.record_count for _, checked in batches),
            size=size,
            duplicate=all(result.duplicate for result in results),
        )

    def _append_one(self, view: memoryview, checked: Checked, *, now_ms: int) -> Appended:
        header = checked.header
        result = self.log.append(view, checked, now_ms=now_ms)
        if not result.duplicate:
            self.recent.add(
                view,
                base_offset=result.base_offset,
                next_offset=result.next_offset,
                rows=header.record_count,
                schema_id=header.schema_id,
            )
        return result

    # --- staging and publishing (in the lane) ----------------------------------------------------------

    @property
    def stages(self) -> StageStore:
        """What is written here and not published."""
        assert self._stages is not None, "this tablet was opened without stages"
        return self._stages

    @property
    def has_stages(self) -> bool:
        """Whether something is written here and not published."""
        return self._stages is not None and len(self._stages) > 0

    @property
    def keeps_seals(self) -> bool:
        """Whether a sealed stage survives power loss."""
        return self.durability == "group"

    def stage_piece(self, piece: StagePiece, *, form: PieceForm, now_ms: int) -> StageState:
        """Add a piece to a stage, checked as an append is; sealed, it is durable when ``StageState.seal`` is."""
        self.check_writable()
        rows = self.check_piece(piece, form) if self.stages.expects(piece) else 0
        return self.stages.add(piece, rows, now_ms)

    def check_piece(self, piece: StagePiece, form: PieceForm) -> int:
        """Refuse what an append would refuse, so that publishing cannot fail; the rows of the piece."""
        rows = 0
        for found, view in split(piece.records):
            header = self._checked(found.schema_id, view, form.layout_of)[1].header
            if header.writer_id >= 0:
                raise MalformedBatch(
                    "a staged batch has no writer: what makes it unique is its stage",
                    writer_id=header.writer_id,
                )
            rows += header.record_count
        if not len(piece.records):
            raise MalformedBatch("the piece holds no batch", bucket=str(self.bucket))
        return rows

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
        """Publish decisions in the order of their numbers, each as one group; those that were, are passed over.

        They are applied when the high watermark is ``Applied.end_offset``; call ``release`` then.
        """
        self.check_writable()
        return apply_commits(self, commits, form=form, now_ms=now_ms)

    def release(self, commits: Sequence[Commit]) -> int:
        """Free the stages of decisions whose groups are as durable as promised; how many."""
        applied = self.applied
        gone = [one for commit in commits if commit.origin.number <= applied for one in commit.stages]
        self.drop_overwritten()
        return self.stages.drop(gone)

    def emptied_at(self, end: int) -> int:
        """Where the log starts since the newest group up to ``end`` that overwrote it; 0 when none did."""
        return self.log.groups.emptied_at(end)

    def drop_overwritten(self) -> None:
        """Remove what a visible group has overwritten."""
        start = self.emptied_at(self.high_watermark)
        if start > self.log.start_offset:
            self.log.drop_before(start)

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record at ``offset`` - 1, -1 when there is none."""
        return self.log.epochs.epoch_of(offset - 1)

    def cut(self, number: int | None) -> LogCut:
        """What a read that was planned at a decision's number sees; without a number, whatever is visible."""
        self.check_online()
        return cut_at(self, number)

    def publish_piece(self, piece: StagedBatches, form: PieceForm, now_ms: int) -> int:
        """Append a piece to the open group."""
        for header, view in split(piece.records):
            self._append_one(view, Checked(header, read_columns(view, header), None), now_ms=now_ms)
        return len(piece.records)

    def publish_nothing(self, schema_id: int, now_ms: int) -> int:
        """Append a batch without records to the open group: it takes one offset."""
        return self._append_nothing(encode(_NO_ROWS, schema_id=schema_id), now_ms).size

    def _append_nothing(self, batch: bytearray, now_ms: int) -> BatchHeader:
        header = read_header(batch)
        checked = Checked(header, read_columns(batch, header), None)
        self._append_one(memoryview(batch), checked, now_ms=now_ms)
        return header

    def empty(self, now_ms: int) -> None:
        """In the open group: what was there before goes once the group is visible (``drop_overwritten``)."""

    def take_back(self) -> None:
        """Take back the open group."""
        self.log.abort_group()
        self.recent.forget()

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
            if self._stages is not None:
                self._stages.fail(error)

    def close(self) -> None:
        """Make everything durable and let go of the files; the log is opened again by a new tablet."""
        self.closed = True
        if self._stages is not None:
            self._stages.close()
        self.log.close()

    def abandon(self) -> None:
        """Let go of the files: what they hold is about to be removed."""
        self.closed = True
        if self._stages is not None:
            self._stages.close()
        self.log.abandon()

    # --- what is given up (in the lane) ----------------------------------------------------------------

    def mark_damaged(self, start: int, end: int, *, schema_id: int, take_back: bool, now_ms: int) -> None:
        """Give up the batches that hold offsets of [start, end), or take that back."""
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
        """Whole batches from ``offset`` up to the high watermark (and ``until``), one of up to ``most`` at least.

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
                f"{timestamp_ms} ms lies in the future (it is {now_ms} ms); ask for the latest offset instead",
                timestamp_ms=timestamp_ms,
                now_ms=now_ms,
            )
        return min(self.log.offset_at(timestamp_ms), self.high_watermark)
