"""The log of one bucket: append at the end, read from anywhere, roll, expire, truncate, recover.

Invariants
    1. Offsets are dense; a segment starts where the one before it ends.
    2. ``start_offset <= synced_end <= end_offset``; what is below ``synced_end`` survives power loss.
    3. Timestamps never fall along the log, whatever the clock does.
    4. An epoch is durable before its first record is written.

Who may call what. One hand at a time: ``append``, ``roll_if_due``, ``expire``, ``truncate``, ``pending_checkpoint``,
``checkpointed``, ``checkpoint``, ``mend``, ``close``. One hand, maybe another: ``pending_sync``, ``synced``. Anyone, in
any thread, at any time: ``read``, ``tail_rows``, ``offset_at``; they see whole batches below the end they were given.

Format: docs/formats/segment.md. Opening: recovery.py. Reading: slices.py.
"""

from __future__ import annotations

from typing import NamedTuple

from strom.errors import OffsetOutOfRange, Retry, StorageFull, StorageOffline
from strom.log import layout as at
from strom.log.active import create_segment, publish_batch, write_batch
from strom.log.chain import Chain, expired
from strom.log.checkpoint import Checkpoint
from strom.log.epochs import Epochs
from strom.log.index import Anchor
from strom.log.opening.mend import cut_behind, rebuild_sidecar, remove_segment, write_index
from strom.log.opening.recovery import Recovered, Recovery, closed_cleanly
from strom.log.reading.seek import entries_between, offset_at, tail_begin
from strom.log.reading.slices import LogSlice, ProjectionOf, Skip, SliceReader, joined
from strom.log.retention import SegmentFacts, count_expired
from strom.log.segment import Segment
from strom.log.settings import LogSettings
from strom.log.sidecar import encode_entry
from strom.log.sync import PendingCheckpoint, SyncPoint, SyncState
from strom.log.writers import WriterBatch, Writers
from strom.record.batch import BatchHeader, Checked, stamp
from strom.record.project import Projection
from strom.runtime.files import Files

__all__ = ["Appended", "ExpiredSegments", "Log", "LogSettings", "LogSlice", "PendingCheckpoint", "SyncPoint"]

TAIL_BYTES_MAX = 64 * 1024 * 1024
BATCH_BYTES_ANY = 1 << 62


class Appended(NamedTuple):
    """Where a batch lies."""

    base_offset: int
    next_offset: int
    duplicate: bool


class ExpiredSegments(NamedTuple):
    """What retention removed."""

    segments: int
    bytes: int
    start_offset: int
    """Where the log starts now."""


class Log:
    """One bucket's log on a disk."""

    def __init__(self, files: Files, folder: str, settings: LogSettings, found: Recovered) -> None:
        """Use ``Log.open``."""
        self.report = found.report
        self._files = files
        self._folder = folder
        self._settings = settings
        self._writers = found.writers
        self._end_offset = found.end_offset
        self._last_timestamp_ms = found.last_timestamp_ms
        epochs = found.epochs.begin(found.end_offset, log_start=found.segments[0].base_offset)
        self._epoch_durable = False
        self._chain = Chain(files, found.segments, epochs, interval_bytes=settings.index_interval_bytes)
        self._sync = SyncState(
            files,
            folder,
            self._chain,
            end_offset=found.end_offset,
            checkpointed=found.report.clean,
        )
        self._offline: StorageOffline | None = None
        self._closed = False

    @staticmethod
    def open(files: Files, folder: str, settings: LogSettings, now_ms: int) -> Log:
        """Open a log, or begin one; after an unclean stop this reads what came after the last checkpoint."""
        recovery = Recovery(
            files,
            folder,
            interval_bytes=settings.index_interval_bytes,
            writer_expiry_ms=settings.writer_expiry_ms,
        )
        try:
            log = Log(files, folder, settings, recovery.run(now_ms=now_ms))
        except OSError as error:
            raise StorageOffline(
                f"the disk failed while {folder} was opened: {error}", folder=folder
            ) from error
        if not log.report.clean:
            log._checkpoint_if_room()
        return log

    @staticmethod
    def closed_cleanly(files: Files, folder: str) -> bool:
        """Whether ``open`` will be quick."""
        return closed_cleanly(files, folder)

    def close(self) -> None:
        """Make everything durable and let go of the files. Closing twice is fine."""
        if self._closed:
            return
        if self._offline is None and not self._sync.is_checkpointed(self._end_offset):
            self._checkpoint_if_room()
        self.abandon()

    def abandon(self) -> None:
        """Let go of the files as they are."""
        self._closed = True
        self._chain.forget_all()

    # --- facts ---------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The first offset that is still there."""
        return self._chain.start_offset

    @property
    def end_offset(self) -> int:
        """The offset the next record gets."""
        return self._end_offset

    @property
    def synced_end(self) -> int:
        """Everything below survives power loss."""
        return self._sync.synced_end

    @property
    def offline(self) -> StorageOffline | None:
        """Why nothing works any more, after the disk failed."""
        return self._offline

    @property
    def epochs(self) -> Epochs:
        """The epochs of the log, the current one last."""
        return self._chain.epochs

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self._chain.epochs.latest

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.log_size for segment in self._chain.segments)

    @property
    def segment_count(self) -> int:
        """How many segments there are."""
        return len(self._chain.segments)

    @property
    def last_timestamp_ms(self) -> int:
        """The timestamp of the newest batch, or -1."""
        return self._last_timestamp_ms

    @property
    def sealed_ends(self) -> list[int]:
        """Where each sealed segment ends, rising."""
        return [_end(segment) for segment in self._chain.segments[:-1]]

    def segments(self) -> list[dict[str, object]]:
        """The segments, for people."""
        return [
            {
                "base_offset": segment.base_offset,
                "end_offset": self._end_offset if segment.end_offset is None else segment.end_offset,
                "size_bytes": segment.log_size,
                "sealed": segment.end_offset is not None,
            }
            for segment in self._chain.segments
        ]

    def describe(self) -> dict[str, object]:
        """The log, for people."""
        return {
            "folder": self._folder,
            "start_offset": self.start_offset,
            "synced_end": self.synced_end,
            "end_offset": self.end_offset,
            "epoch": self.epoch,
            "size_bytes": self.size_bytes,
            "segments": self.segment_count,
            "writers": len(self._writers),
            "last_timestamp_ms": self._last_timestamp_ms,
            "offline": None if self._offline is None else str(self._offline),
        }

    # --- appending -----------------------------------------------------------------------------------------------

    def append(self, view: memoryview, checked: Checked, *, now_ms: int) -> Appended:
        """Append one batch that ``record.check_and_sum`` has passed; its bytes are stamped in place.

        Raises StorageFull (nothing has changed), OutOfOrderSequence, UnknownWriter, StorageOffline.
        """
        self._check_online()
        header, columns, buffer_crcs, _ = checked
        known = self._writers.find_duplicate(header, now_ms=now_ms)
        if known is not None:
            return Appended(known.base_offset, known.next_offset, True)
        if not self._epoch_durable:
            self._begin_epoch()
        segment = self._chain.active
        if not segment.empty and self._is_due(segment, header.size, now_ms):
            self._roll(self._end_offset)
            segment = self._chain.active
        base_offset = self._end_offset
        timestamp_ms = max(now_ms, self._last_timestamp_ms)
        stamp(view, base_offset=base_offset, timestamp_ms=timestamp_ms)
        entry = encode_entry(
            view,
            header,
            columns.buffers,
            head_size=columns.head_size,
            base_offset=base_offset,
            timestamp_ms=timestamp_ms,
            position=segment.log_size,
            epoch=self._chain.epochs.latest,
            synced_end=self._sync.synced_end,
            buffer_crcs=buffer_crcs,
        )
        try:
            write_batch(segment, self._chain.files_of(segment), view, entry)
        except OSError as error:
            raise self._failed("write", error) from error
        publish_batch(
            segment,
            base_offset=base_offset,
            timestamp_ms=timestamp_ms,
            batch_size=header.size,
            entry_size=len(entry),
        )
        return self._count(header, base_offset, timestamp_ms)

    def duplicate_of(self, writer_id: int, batch_sequence: int, *, now_ms: int) -> Appended | None:
        """Where a batch already lies that its writer sends again; raises as ``append`` does."""
        known = self._writers.find(writer_id, batch_sequence, now_ms=now_ms)
        return None if known is None else Appended(known.base_offset, known.next_offset, True)

    def appends_quickly(self, size: int, now_ms: int) -> bool:
        """Whether the next append of ``size`` bytes is only a write: no new epoch, no new segment."""
        segment = self._chain.active
        return self._epoch_durable and (segment.empty or not self._is_due(segment, size, now_ms))

    def _count(self, header: BatchHeader, base_offset: int, timestamp_ms: int) -> Appended:
        """The batch is in its files: now it is in the log."""
        next_offset = base_offset + header.last_offset_delta + 1
        if header.writer_id >= 0:
            batch = WriterBatch(header.batch_sequence, base_offset, next_offset)
            self._writers.remember(header.writer_id, batch, timestamp_ms=timestamp_ms)
        self._last_timestamp_ms = timestamp_ms
        self._sync.bytes_since_checkpoint += header.size
        self._end_offset = next_offset  # last: this is what readers go by
        return Appended(base_offset, next_offset, False)

    def _is_due(self, segment: Segment, size: int, now_ms: int) -> bool:
        settings = self._settings
        return (
            segment.log_size + size > settings.segment_bytes
            or now_ms - segment.first_timestamp_ms >= settings.roll_ms
        )

    def _begin_epoch(self) -> None:
        """Make the epoch durable, and the first segment with it."""
        try:
            self._create(self._chain.active)
            self._files.write_whole(f"{self._folder}/{at.EPOCHS_NAME}", self._chain.epochs.encode())
        except OSError as error:
            raise self._failed("begin an epoch", error) from error
        self._epoch_durable = True

    # --- segments ------------------------------------------------------------------------------------------------

    def _create(self, segment: Segment) -> None:
        if not segment.created:
            self._files.make_folder(self._folder)
            create_segment(self._files, segment, interval_bytes=self._settings.index_interval_bytes)
            self._sync.folder_changed()

    def _roll(self, end_offset: int) -> None:
        """Seal the active segment, which ends at ``end_offset``, and begin the next one."""
        sealed = self._chain.active
        following = Segment(self._folder, end_offset)
        try:
            files = self._chain.files_of(sealed)
            if self._settings.sync_on_roll:
                # A later segment then proves that the earlier ones are durable.
                files.log.sync()
            write_index(self._files, sealed, files.index, self._chain.epochs, end_offset=end_offset)
            self._create(following)
        except StorageFull:
            remove_segment(self._files, following)
            raise
        except OSError as error:
            raise self._failed("roll", error) from error
        self._chain.keep_open(sealed, files)
        sealed.end_offset = end_offset
        self._chain.segments = (*self._chain.segments, following)
        sealed.files = sealed.index = None
        self._sync.rolled()

    def roll_if_due(self, now_ms: int) -> bool:
        """Seal the active segment when its oldest batch is old enough, also when nobody writes."""
        self._check_online()
        self._writers.forget_expired(now_ms)
        segment = self._chain.active
        if segment.empty or not self._is_due(segment, 0, now_ms):
            return False
        self._roll(self._end_offset)
        return True

    def expire(
        self, *, now_ms: int, ttl_ms: int | None, bytes_max: int | None, keep_from: int | None = None
    ) -> ExpiredSegments:
        """Remove the oldest segments that are too old or too much; the end offset stays.

        The active segment is sealed first when its oldest batch is older than ``ttl_ms``. While a checkpoint is under
        way nothing expires: the next call will do.
        """
        self._check_online()
        if self._sync.checkpoint_under_way:
            return ExpiredSegments(0, 0, self.start_offset)
        active = self._chain.active
        if ttl_ms is not None and not active.empty and active.first_timestamp_ms + ttl_ms < now_ms:
            self._roll(self._end_offset)
        *sealed, active = self._chain.segments
        count = count_expired(
            [SegmentFacts(_end(segment), segment.log_size) for segment in sealed],
            active_bytes=active.log_size,
            last_timestamp_ms=lambda number: self._chain.last_timestamp(sealed[number]),
            now_ms=now_ms,
            ttl_ms=ttl_ms,
            bytes_max=bytes_max,
            keep_from=keep_from,
        )
        if count:
            # What writers gave in these segments must be in a checkpoint before it is nowhere else.
            self.checkpoint()
        for segment in sealed[:count]:
            self._remove_first(segment)
        return ExpiredSegments(count, sum(segment.log_size for segment in sealed[:count]), self.start_offset)

    def _remove_first(self, segment: Segment) -> None:
        self._chain.segments = self._chain.segments[1:]
        self._chain.forget(segment)
        try:
            remove_segment(self._files, segment)
            # One by one, so that power loss can never leave a gap in the middle.
            self._files.sync_folder(self._folder)
        except OSError as error:
            raise self._failed("remove a segment", error) from error

    def truncate(self, to_offset: int) -> int:
        """Cut the log so that it ends at or before ``to_offset``, between two batches; returns the new end.

        A new epoch begins. Not while a checkpoint is under way, and not while a reader was given an ``until`` above
        the cut.
        """
        self._check_online()
        if not self.start_offset <= to_offset <= self._end_offset:
            raise self._out_of_range(to_offset)
        if to_offset == self._end_offset:
            return to_offset
        segment, files, walk, entry = self._chain.locate(to_offset)
        end = Anchor(entry.base_offset, entry.position, walk.sidecar_position - entry.entry_size)
        self._end_offset = end.offset
        try:
            self._forget_writers_behind(end.offset)
            # Before anything is cut: after a crash the part behind it is there or gone, but nothing seems damaged.
            self._sync.pending_checkpoint(self._checkpoint(segment, end)).write()
            self._sync.truncated(end.offset)
            cut_behind(self._files, self._chain, segment, files, end)
        except (OSError, Retry) as error:  # whatever it was: half of it is done
            raise self._failed("truncate", error) from error
        self._chain.epochs = self._chain.epochs.begin(end.offset, log_start=self.start_offset)
        self._epoch_durable = False
        return end.offset

    def _forget_writers_behind(self, end_offset: int) -> None:
        if self._writers.cut(end_offset):
            return
        # A writer lost all that was remembered of it; what it gave before is in the log.
        self._writers = Writers(expiry_ms=self._settings.writer_expiry_ms)
        if end_offset > self.start_offset:
            for entry in entries_between(self._chain, self.start_offset, end_offset):
                batch = WriterBatch(entry.batch_sequence, entry.base_offset, entry.next_offset)
                self._writers.remember(entry.writer_id, batch, timestamp_ms=entry.timestamp_ms)

    def mend(self) -> int:
        """Make sidecars and indexes again that readers found wrong; returns of how many segments."""
        self._check_online()
        worn = [s for s in self._chain.segments if s.worn and s.end_offset is not None]
        return sum(self._mend(segment) for segment in worn)

    def _mend(self, segment: Segment) -> bool:
        segment.worn = False
        files = self._chain.files_of(segment)
        try:
            if not rebuild_sidecar(self._files, segment, files, self._chain.epochs):
                return False
        except StorageFull:
            return False
        segment.sidecar_size = self._files.size(segment.sidecar_path)
        write_index(self._files, segment, files.index, self._chain.epochs, end_offset=_end(segment))
        self._chain.forget(segment)
        return True

    # --- durability ----------------------------------------------------------------------------------------------

    def pending_sync(self) -> SyncPoint | None:
        """What has to be synced so that everything appended so far is durable; None when it is."""
        if self._closed:
            return None  # closing made everything durable, or nothing will
        self._check_online()
        end_offset = self._end_offset  # first: what is below it is in the files that are looked at next
        return None if end_offset == self._sync.synced_end else self._sync.point(end_offset)

    def synced(self, point: SyncPoint) -> None:
        """A point was synced."""
        self._sync.synced(point)

    def pending_checkpoint(self) -> PendingCheckpoint | None:
        """A checkpoint to be written, when enough was appended since the last one and none is under way.

        Whoever takes it must call its ``write``.
        """
        self._check_online()
        due = self._sync.bytes_since_checkpoint >= self._settings.checkpoint_bytes
        if not due or self._sync.checkpoint_under_way:
            return None
        return self._checkpoint_now()

    def checkpointed(self, pending: PendingCheckpoint) -> None:
        """A checkpoint was written."""
        self._sync.checkpointed(pending)

    def checkpoint(self) -> None:
        """Write a checkpoint now, and wait for it."""
        self._check_online()
        try:
            self._create(self._chain.active)
            pending = self._checkpoint_now()
            pending.write()
        except OSError as error:
            raise self._failed("sync", error) from error
        self.checkpointed(pending)

    def _checkpoint_now(self) -> PendingCheckpoint:
        segment = self._chain.active
        if segment.index is not None:
            write_index(self._files, segment, segment.index, self._chain.epochs, end_offset=self._end_offset)
        end = Anchor(self._end_offset, segment.log_size, segment.sidecar_size)
        return self._sync.pending_checkpoint(self._checkpoint(segment, end))

    def _checkpoint(self, segment: Segment, end: Anchor) -> Checkpoint:
        return Checkpoint(
            segment.base_offset,
            end.position,
            end.sidecar_position,
            end.offset,
            self._last_timestamp_ms,
            self._writers.snapshot(),
        )

    def _checkpoint_if_room(self) -> None:
        try:
            self.checkpoint()
        except StorageFull:
            pass  # without it the next opening reads more

    def fail(self, error: StorageOffline) -> None:
        """The disk failed: everyone gets ``error`` from now on. There is no way back but a restart."""
        if self._offline is None:
            self._offline = error

    def _failed(self, what: str, error: OSError | Retry) -> StorageOffline:
        offline = StorageOffline(
            f"the disk failed to {what} in {self._folder}: {error}; restart the server once the disk is well",
            folder=self._folder,
        )
        self.fail(offline)
        return offline

    def _check_online(self) -> None:
        if self._offline is not None:
            raise self._offline
        assert not self._closed

    # --- reading -------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        *,
        until: int,
        max_bytes: int,
        projection: Projection | ProjectionOf | None = None,
        skip: Skip | None = None,
        most: int | None = BATCH_BYTES_ANY,
    ) -> LogSlice:
        """Whole batches from the one that holds ``offset`` up to ``until``, at most ``max_bytes`` of them.

        A first one may be larger, up to ``most`` bytes (None: it may not); ``LogSlice.lacking`` tells that it is larger
        still. Raises OffsetOutOfRange and ChecksumMismatch.
        """
        if self._offline is not None:
            raise self._offline
        if not self.start_offset <= offset <= self._end_offset:
            raise self._out_of_range(offset)
        until = min(until, self._end_offset)
        if offset >= until:
            return LogSlice([], offset)
        reader = SliceReader(
            self._chain,
            until=until,
            max_bytes=max_bytes,
            projection=(lambda _: projection) if isinstance(projection, Projection) else projection,
            skip=skip,
            most=most,
        )
        try:
            return reader.read(offset)
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> StorageOffline:
        """The error for a read that the disk refused. The log stays online: other parts may be readable."""
        return StorageOffline(f"the disk failed to read in {self._folder}: {error}", folder=self._folder)

    def _out_of_range(self, offset: int) -> OffsetOutOfRange:
        if offset < self.start_offset:
            return expired(offset, self.start_offset)
        return OffsetOutOfRange(
            f"offset {offset} is not written yet: the log ends at {self._end_offset}",
            offset=offset,
            end_offset=self._end_offset,
        )

    def bytes_from(self, offset: int) -> int:
        """About how many bytes of batches lie between ``offset`` and the end; no file is touched."""
        total = 0
        for segment in reversed(self._chain.segments):
            if segment.base_offset > offset:
                total += segment.log_size
                continue
            files = segment.files
            begun = files.index.before(offset).position if files is not None else 0
            return total + max(0, segment.log_size - begun)
        return total

    def offset_at(self, timestamp_ms: int) -> int:
        """The first offset of the first batch whose timestamp is at least this, else the end."""
        end_offset = self._end_offset
        if timestamp_ms > self._last_timestamp_ms:
            return end_offset
        try:
            return offset_at(self._chain, timestamp_ms, end_offset=end_offset)
        except OSError as error:
            raise self._unreadable(error) from error

    def tail_rows(self, limit: int, *, until: int, max_bytes: int = TAIL_BYTES_MAX) -> LogSlice:
        """The newest batches below ``until`` that hold ``limit`` rows together, or as many as fit ``max_bytes``.

        A damaged batch among them raises ChecksumMismatch.
        """
        until = max(min(until, self._end_offset), self.start_offset)
        try:
            begin, size = tail_begin(self._chain, limit, until=until, max_bytes=max_bytes)
        except OSError as error:
            raise self._unreadable(error) from error
        found = self.read(begin, until=until, max_bytes=max(size, 1))
        while found.next_offset < until:  # a gap, or what ended the slice: that is raised
            found = joined(found, self.read(found.next_offset, until=until, max_bytes=max(size, 1)))
        return found


def _end(segment: Segment) -> int:
    assert segment.end_offset is not None
    return segment.end_offset
