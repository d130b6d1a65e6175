"""The log of one bucket: append at the end, read from anywhere, roll, expire, truncate, recover.

Invariants
    1. Offsets are dense; a segment starts where the one before it ends.
    2. ``start_offset <= synced_end <= end_offset``; what is below ``synced_end`` survives power loss.
    3. Timestamps never fall along the log, whatever the clock does.
    4. An epoch is durable before its first record is written.
    5. An open group exists only for its writer: ``end_offset``, and with it all that is synced, checkpointed and read,
       stays at the group's start until the group is closed; then it moves behind all of it at once.
    6. No cut goes through a group. More about groups: group_file.py.

Threads. ``pending_sync`` and ``synced`` belong to one thread at a time; everything else that changes the log belongs to
one thread at a time too, maybe another. ``read``, ``tail_rows``, ``offset_at`` and the facts are for any thread, at any
time; reads see whole batches below the end they were given. While a group is open, only ``append``, ``close_group`` and
``abort_group`` change the log.

Parts: chain.py (segments, for readers), chain_writer.py, log_reader.py, group_file.py, damage.py, sync.py, writers.py,
reading/, opening/. Format: docs/formats/segment.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from strom.errors import ChecksumMismatch, Retry, StorageFull, StorageOffline
from strom.log import layout as at
from strom.log.chain import Chain, out_of_range
from strom.log.chain_writer import ChainWriter
from strom.log.damage import Damage, DamageFile, Mark
from strom.log.epochs import Epochs
from strom.log.group_file import GroupFile, OpenGroup
from strom.log.groups import Group, Groups, Origin
from strom.log.health import Health
from strom.log.index import Anchor
from strom.log.log_reader import LogReader
from strom.log.opening.mend import cut_behind, write_index
from strom.log.opening.recovery import Recovered, Recovery
from strom.log.reading.seek import batch_around, entries_between
from strom.log.reading.slices import LogSlice
from strom.log.retention import ExpiredSegments, expired_segments
from strom.log.segment import Segment
from strom.log.settings import LogSettings
from strom.log.sync import PendingCheckpoint, SyncPoint, SyncState
from strom.log.writers import WriterBatch
from strom.record.batch import Checked
from strom.runtime.files import Files

__all__ = ["Appended", "ExpiredSegments", "Log", "LogSettings", "LogSlice", "PendingCheckpoint", "SyncPoint"]


class Appended(NamedTuple):
    """Where a batch lies."""

    base_offset: int
    next_offset: int
    duplicate: bool


class Log:
    """One bucket's log on a disk."""

    def __init__(self, files: Files, folder: str, settings: LogSettings, found: Recovered) -> None:
        """Use ``Log.open``."""
        self.report = found.report
        self._files = files
        self._folder = folder
        self._settings = settings
        self._writers = found.writers
        self._health = Health(folder)
        epochs = found.epochs.begin(found.end_offset, log_start=found.segments[0].base_offset)
        self._epoch_durable = False
        self._chain = Chain(
            files,
            found.segments,
            epochs,
            end_offset=found.end_offset,
            newest_timestamp_ms=found.last_timestamp_ms,
            interval_bytes=settings.index_interval_bytes,
        )
        self._sync = SyncState(files, folder, self._chain, checkpointed=found.report.clean)
        self._chain_writer = ChainWriter(files, folder, settings, self._chain, self._sync, self._health)
        self._group_file = GroupFile(files, folder, self._health)
        self._open_group: OpenGroup | None = None
        self._damage_file = DamageFile(files, folder, self._health)
        reader = LogReader(self._chain, self._damage_file, self._health)
        self.read, self.tail_rows, self.offset_at = reader.read, reader.tail_rows, reader.offset_at
        self.bytes_from = self._chain.bytes_from
        self._closed = False

    @staticmethod
    def open(files: Files, folder: str, settings: LogSettings, now_ms: int) -> Log:
        """Open a log, or begin one; a group that was not closed is cut off.

        After an unclean stop this reads what came after the last checkpoint.
        """
        try:
            found = Recovery(files, folder, settings).run(now_ms=now_ms)
            log = Log(files, folder, settings, found)
            log._load_groups(log.end_offset if found.report.clean else found.durable_end)
        except OSError as error:
            raise StorageOffline(
                f"the disk failed while {folder} was opened: {error}", folder=folder
            ) from error
        if not log.report.clean:
            log._checkpoint_if_room()
        return log

    def _load_groups(self, durable_end: int) -> None:
        cut = self._group_file.load(end_offset=self._chain.end_offset, durable_end=durable_end)
        if cut is not None:
            place = self._chain.locate(cut)
            end = place.start
            try:
                self._forget_writers_behind(end.offset)
            except ChecksumMismatch:
                pass  # what lies behind a damaged batch is not known: its writers get OutOfOrderSequence
            self._cut_unseen(place.segment, end)
            self._sync.truncated(end.offset)
            self._sync.rolled()
        self._group_file.sync()  # opening made the log durable; so must be the record of its groups

    def close(self) -> None:
        """Make everything durable and release the files. Closing twice is fine."""
        if self._closed:
            return
        if self.offline is None and not self._sync.is_checkpointed(self._chain.end_offset):
            self._checkpoint_if_room()
        self.abandon()

    def abandon(self) -> None:
        """Release the files as they are."""
        self._closed = True
        self._chain.forget_all()
        self._group_file.release()
        self._sync.release()

    # --- facts ---------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """The first offset that is still there."""
        return self._chain.start_offset

    @property
    def end_offset(self) -> int:
        """The offset the next record gets."""
        return self._chain.end_offset

    @property
    def synced_end(self) -> int:
        """Everything below survives power loss."""
        return self._sync.synced_end

    @property
    def offline(self) -> StorageOffline | None:
        """Why nothing works any more, after the disk failed."""
        return self._health.offline

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
    def sealed_ends(self) -> list[int]:
        """Where each sealed segment ends, rising."""
        return [segment.sealed_end for segment in self._chain.segments[:-1]]

    @property
    def groups(self) -> Groups:
        """The closed groups."""
        return self._group_file.groups

    @property
    def damage(self) -> Damage:
        """The offsets that were given up as damaged."""
        return self._damage_file.damage

    # --- appending -----------------------------------------------------------------------------------------------

    def append(self, view: memoryview, checked: Checked, *, now_ms: int) -> Appended:
        """Append one batch that ``record.check_and_sum`` has passed; its bytes are stamped in place.

        While a group is open the batch, which then has no writer, belongs to the group. Raises StorageFull (nothing
        has changed), OutOfOrderSequence, UnknownWriter, StorageOffline.
        """
        self._check_online()
        header = checked.header
        known = self._writers.find_duplicate(header, now_ms=now_ms)
        if known is not None:
            return Appended(known.base_offset, known.next_offset, True)
        if not self._epoch_durable:
            self._begin_epoch()
        group = self._open_group
        base_offset = self._chain.end_offset if group is None else group.end_offset
        assert group is None or header.writer_id < 0, "a batch of a group has no writer"
        timestamp_ms = self._chain_writer.write(view, checked, base_offset=base_offset, now_ms=now_ms)
        next_offset = base_offset + header.last_offset_delta + 1
        if group is not None:
            group.rows += header.record_count
            group.end_offset = next_offset
            return Appended(base_offset, next_offset, False)
        if header.writer_id >= 0:
            batch = WriterBatch(header.batch_sequence, base_offset, next_offset)
            self._writers.remember(header.writer_id, batch, timestamp_ms=timestamp_ms)
        self._chain.end_offset = next_offset  # last: this is what readers go by
        return Appended(base_offset, next_offset, False)

    def duplicate_of(self, writer_id: int, batch_sequence: int, *, now_ms: int) -> Appended | None:
        """Where a batch lies that its writer sends again; None for a new one. Raises as ``append`` does."""
        known = self._writers.find(writer_id, batch_sequence, now_ms=now_ms)
        return None if known is None else Appended(known.base_offset, known.next_offset, True)

    def appends_quickly(self, size: int, now_ms: int) -> bool:
        """Whether the next append of ``size`` bytes is only a write: no new epoch, no new segment."""
        return self._epoch_durable and (
            self._chain.active.empty or not self._chain_writer.is_due(size, now_ms)
        )

    def _begin_epoch(self) -> None:
        """Make the epoch durable, and the first segment with it.

        First, files that record groups or marks of batches that no longer exist are corrected: their offsets are about
        to be given again.
        """
        self._group_file.repair()
        self._damage_file.limit(self.start_offset, self._chain.end_offset)
        try:
            self._chain_writer.create(self._chain.active)
            self._files.write_whole(f"{self._folder}/{at.EPOCHS_NAME}", self._chain.epochs.encode())
        except OSError as error:
            raise self._health.failed("begin an epoch", error) from error
        self._epoch_durable = True

    # --- groups --------------------------------------------------------------------------------------------------

    def begin_group(self, origin: Origin) -> int:
        """Begin a group at the end of the log; returns its start. StorageFull leaves everything as it was."""
        self._check_online()
        assert self._open_group is None
        assert origin.number > self.groups.newest
        if not self._epoch_durable:
            self._begin_epoch()
        if origin.overwrite and not self._chain.active.empty:
            self._chain_writer.roll(
                self._chain.end_offset
            )  # so that what is overwritten can go segment by segment
        self._group_file.begin(origin, self._chain.end_offset)
        segment = self._chain.active
        start = Anchor(self._chain.end_offset, segment.log_size, segment.sidecar_size)
        self._open_group = OpenGroup(
            origin, segment, start, self._chain.newest_timestamp_ms, self._chain.end_offset
        )
        return self._chain.end_offset

    def close_group(self) -> Group:
        """Make the open group visible, whole. StorageFull leaves it open."""
        self._check_online()
        opened = self._open_group
        assert opened is not None
        assert opened.end_offset > opened.start.offset, "a group has at least one offset"
        group = Group(opened.origin, opened.start.offset, opened.end_offset, no_rows=not opened.rows)
        self._sync.group_closed(self._group_file.close(group), group.end_offset)
        self._open_group = None
        self._chain.end_offset = group.end_offset  # last: this is what readers go by
        if group.no_rows and group.origin.overwrite:
            try:
                self._chain_writer.roll(self._chain.end_offset)  # so that the empty batch can go too
            except StorageFull:
                pass  # then the log starts with the empty batch
        return group

    def abort_group(self) -> int:
        """Take back what was written of the open group; needs no room. Returns where the log ends, as before it."""
        opened = self._open_group
        assert opened is not None
        self._open_group = None
        self._group_file.sound = False
        if self.offline is None:
            try:
                # Also when nothing was written: a new epoch begins, and with it the file of groups is rewritten.
                self._cut_unseen(opened.segment, opened.start)
            except (OSError, Retry) as error:  # whatever it was: half of it may be done
                raise self._health.failed("take back a group", error) from error
            self._chain.newest_timestamp_ms = opened.previous_timestamp_ms
        return self._chain.end_offset

    @property
    def in_group(self) -> bool:
        """Whether a group is open."""
        return self._open_group is not None

    @property
    def group_end(self) -> int:
        """Where the open group ends so far."""
        assert self._open_group is not None
        return self._open_group.end_offset

    # --- segments ------------------------------------------------------------------------------------------------

    def roll_if_due(self, now_ms: int) -> bool:
        """Seal the active segment when its oldest batch is old enough, even if nobody writes."""
        self._check_online()
        self._writers.forget_expired(now_ms)
        if self._chain.active.empty or not self._chain_writer.is_due(0, now_ms):
            return False
        self._chain_writer.roll(self._chain.end_offset)
        return True

    def expire(
        self, *, now_ms: int, ttl_ms: int | None, bytes_max: int | None, keep_from: int | None = None
    ) -> ExpiredSegments:
        """Remove the oldest segments that are too old or exceed ``bytes_max``; the end offset stays.

        The active segment is sealed first when its oldest batch is older than ``ttl_ms``. While a checkpoint is under
        way nothing expires: the next call will do it.
        """
        self._check_online()
        if self._sync.checkpoint_under_way:
            return ExpiredSegments(0, 0, self.start_offset)
        active = self._chain.active
        if ttl_ms is not None and not active.empty and active.first_timestamp_ms + ttl_ms < now_ms:
            self._chain_writer.roll(self._chain.end_offset)
        gone = expired_segments(
            self._chain, now_ms=now_ms, ttl_ms=ttl_ms, bytes_max=bytes_max, keep_from=keep_from
        )
        self._remove_oldest(gone)
        return ExpiredSegments(len(gone), sum(segment.log_size for segment in gone), self.start_offset)

    def drop_before(self, offset: int) -> int:
        """Remove the segments that end at or before ``offset``; the number of those removed.

        While a checkpoint is under way nothing goes: the next call will do it.
        """
        self._check_online()
        gone = [one for one in self._chain.segments[:-1] if one.sealed_end <= offset]
        if self._sync.checkpoint_under_way:
            return 0
        self._remove_oldest(gone)
        return len(gone)

    def _remove_oldest(self, segments: Sequence[Segment]) -> None:
        if segments:
            # What writers gave in these segments must be in a checkpoint before it is nowhere else.
            self.checkpoint()
            self._chain_writer.remove_oldest(segments)

    def mend(self) -> int:
        """Rebuild sidecars and indexes that readers found damaged; the number of segments mended."""
        self._check_online()
        return self._chain_writer.mend()

    # --- cutting -------------------------------------------------------------------------------------------------

    def truncate(self, to_offset: int) -> int:
        """Cut the log so that it ends at or before ``to_offset``, between two batches or groups; returns the new end.

        A new epoch begins. Not while a checkpoint is under way, and not while a reader was given an ``until`` above
        the cut.
        """
        self._check_online()
        if not self.start_offset <= to_offset <= self._chain.end_offset:
            raise out_of_range(self._chain, to_offset)
        to_offset = self.groups.boundary(to_offset)
        if to_offset == self._chain.end_offset:
            return to_offset
        place = self._chain.locate(to_offset)
        end = place.start
        self._chain.end_offset = end.offset
        try:
            self._forget_writers_behind(end.offset)
            # Before anything is cut: after a crash the part behind it is there or gone, but nothing seems damaged.
            self._sync.pending_checkpoint(place.segment, end, self._writers).write()
            self._sync.truncated(end.offset)
            self._cut(place.segment, end)
        except (OSError, Retry) as error:  # whatever it was: half of it is done
            raise self._health.failed("truncate", error) from error
        self._group_file.truncated(end.offset)
        return end.offset

    def _cut_unseen(self, segment: Segment, end: Anchor) -> None:
        """Cut off what was neither durable nor visible: no checkpoint has to say first that it goes."""
        self._chain.end_offset = end.offset
        self._cut(segment, end)
        self._sync.rolled()  # the checkpoint is not about all of the log

    def _cut(self, segment: Segment, end: Anchor) -> None:
        cut_behind(self._files, self._chain, segment, self._chain.files_of(segment), end)
        self._chain.epochs = self._chain.epochs.begin(end.offset, log_start=self.start_offset)
        self._epoch_durable = False

    def _forget_writers_behind(self, end_offset: int) -> None:
        if self._writers.cut(end_offset):
            return
        # A writer lost all that was remembered of it; what it gave before is in the log.
        self._writers.forget_all()
        if end_offset > self.start_offset:
            for entry in entries_between(self._chain, self.start_offset, end_offset):
                self._writers.replay(entry)

    # --- durability ----------------------------------------------------------------------------------------------

    def pending_sync(self) -> SyncPoint | None:
        """What has to be synced so that everything appended so far is durable; None when it is."""
        if self._closed:
            return None  # closing made everything durable, or nothing will
        self._check_online()
        end_offset = self._chain.end_offset  # first: what is below it is in the files that are looked at next
        return None if end_offset == self._sync.synced_end else self._sync.point(end_offset)

    def synced(self, point: SyncPoint) -> None:
        """A point was synced."""
        self._sync.synced(point)

    def pending_checkpoint(self) -> PendingCheckpoint | None:
        """A checkpoint to be written, when enough was appended since the last one and none is under way.

        The caller must call its ``write``, then ``checkpointed``.
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
            self._chain_writer.create(self._chain.active)
            pending = self._checkpoint_now()
            pending.write()
        except OSError as error:
            raise self._health.failed("sync", error) from error
        self.checkpointed(pending)

    def _checkpoint_now(self) -> PendingCheckpoint:
        segment = self._chain.active
        if segment.index is not None:
            write_index(
                self._files, segment, segment.index, self._chain.epochs, end_offset=self._chain.end_offset
            )
        end = Anchor(self._chain.end_offset, segment.log_size, segment.sidecar_size)
        return self._sync.pending_checkpoint(segment, end, self._writers)

    def _checkpoint_if_room(self) -> None:
        try:
            self.checkpoint()
        except StorageFull:
            pass  # without it the next opening reads more

    def fail(self, error: StorageOffline) -> None:
        """Take the log offline: every call raises ``error`` from now on. Only a restart brings it back."""
        self._health.fail(error)

    def _check_online(self) -> None:
        if self._health.offline is not None:
            raise self._health.offline
        assert not self._closed

    # --- damage --------------------------------------------------------------------------------------------------

    def mark_damaged(self, start: int, end: int, *, schema_id: int, now_ms: int) -> Mark:
        """Give up the batches that hold offsets of [start, end): readers go on behind them. Durable on return."""
        self._check_online()
        return self._damage_file.mark(self._chain, start, end, schema_id=schema_id, now_ms=now_ms)

    def unmark_damaged(self, start: int, end: int) -> int:
        """Take back the marks that touch [start, end); how many offsets are no longer given up."""
        self._check_online()
        return self._damage_file.unmark(start, end)

    def batch_around(self, offset: int) -> tuple[int, int]:
        """The offsets [from, until) of the batch that holds ``offset``; see ``seek.batch_around``."""
        return batch_around(self._chain, offset)
