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
``abort_group`` change the log; what would seal, cut or remove segments or write a checkpoint waits.

Parts: chain.py (segments, for readers), chain_writer.py, log_end.py, log_reader.py, group_file.py,
damage.py, sync.py, writers.py, reading/, opening/, copies/. Format: docs/formats/segment.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from strom.errors import StorageFull, StorageOffline
from strom.log.chain import Chain
from strom.log.chain_writer import ChainWriter
from strom.log.copies.base_files import PinnedFile, base_files
from strom.log.copies.following import LogFollowing
from strom.log.damage import Damage, DamageFile, Mark
from strom.log.epochs import Epochs
from strom.log.group_file import GroupFile
from strom.log.groups import Group, Groups, Origin
from strom.log.health import Health
from strom.log.index import Anchor
from strom.log.log_end import LogEnd
from strom.log.log_reader import LogReader
from strom.log.opening.mend import write_index
from strom.log.opening.recovery import Recovered, Recovery
from strom.log.reading.seek import batch_around
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

    def __init__(
        self,
        files: Files,
        folder: str,
        settings: LogSettings,
        found: Recovered,
        *,
        own_epochs: bool = True,
    ) -> None:
        """Use ``Log.open``."""
        self.report = found.report
        self._settings = settings
        self._files = files
        self._writers = found.writers
        self._health = Health(folder)
        start_offset, epochs = found.segments[0].base_offset, found.epochs
        self._chain = Chain(
            files,
            found.segments,
            epochs.begin(found.end_offset, log_start=start_offset)
            if own_epochs
            else epochs.until(found.end_offset),
            end_offset=found.end_offset,
            newest_timestamp_ms=found.last_timestamp_ms,
            interval_bytes=settings.index_interval_bytes,
        )
        self._sync = SyncState(files, folder, self._chain, checkpointed=found.report.clean)
        self._chain_writer = ChainWriter(
            files, folder, settings, self._chain, self._sync, self._health, lasting_cuts=not own_epochs
        )
        self._group_file = GroupFile(files, folder, self._health)
        self._damage_file = DamageFile(files, folder, self._health)
        self._end = LogEnd(
            files,
            folder,
            self._chain,
            self._sync,
            self._writers,
            self._health,
            chain_writer=self._chain_writer,
            group_file=self._group_file,
            damage_file=self._damage_file,
            own_epochs=own_epochs,
        )
        self.following = LogFollowing(self._end, self._chain, self._group_file, self._health)
        """How a copy of a replicated log takes in what it pulls."""
        reader = LogReader(self._chain, self._damage_file, self._health)
        self.read, self.tail_rows, self.offset_at = reader.read, reader.tail_rows, reader.offset_at
        self.bytes_from = self._chain.bytes_from
        self._closed = False

    @staticmethod
    def open(
        files: Files, folder: str, settings: LogSettings, now_ms: int, *, own_epochs: bool = True
    ) -> Log:
        """Open a log, or begin one; a group that was not closed is cut off.

        After an unclean stop this reads what came after the last checkpoint. ``own_epochs`` False: a copy of a
        replicated log (log_end.py).
        """
        try:
            found = Recovery(files, folder, settings).run(now_ms=now_ms)
            log = Log(files, folder, settings, found, own_epochs=own_epochs)
            log._end.load_groups(log.end_offset if found.report.clean else found.durable_end)
        except OSError as error:
            raise StorageOffline(
                f"the disk failed while {folder} was opened: {error}", folder=folder
            ) from error
        if not log.report.clean:
            log._checkpoint_if_room()
        return log

    def close(self) -> None:
        """Make everything durable and release the files. Closing twice is fine."""
        if self._closed:
            return
        if self.offline is None and self.in_group:
            self.abort_group()  # a follower has pulled a part of it
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
    def own_epochs(self) -> bool:
        """Whether it begins its epochs itself; False for a copy of a replicated log."""
        return self._end.own_epochs

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

    def keep_groups_from(self, offset: int) -> None:
        """Forget no group that ends above an offset: a follower may still ask for it. Any thread."""
        self._group_file.needed_from = offset

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
        end = self._end
        if not end.ready:
            end.prepare()
        group, base_offset = end.group, end.offset
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
        return self._end.ready and (self._chain.active.empty or not self._chain_writer.is_due(size, now_ms))

    def begin_epoch(self, epoch: int) -> None:
        """Lead in an epoch that the metadata gave (R3); durable before its first record. For a replicated log only."""
        self._check_online()
        self._end.begin_epoch(epoch)

    # --- groups --------------------------------------------------------------------------------------------------

    def begin_group(self, origin: Origin) -> int:
        """Begin a group at the end of the log; returns its start. StorageFull leaves everything as it was."""
        self._check_online()
        return self._end.begin_group(origin)

    def close_group(self) -> Group:
        """Make the open group visible, whole. StorageFull leaves it open."""
        self._check_online()
        return self._end.close_group()

    def abort_group(self) -> int:
        """Take back what was written of the open group; needs no room. Returns where the log ends, as before it."""
        return self._end.abort_group()

    @property
    def in_group(self) -> bool:
        """Whether a group is open."""
        return self._end.group is not None

    @property
    def group_end(self) -> int:
        """Where the open group ends so far."""
        assert self._end.group is not None
        return self._end.group.end_offset

    # --- segments ------------------------------------------------------------------------------------------------

    def roll_if_due(self, now_ms: int) -> bool:
        """Seal the active segment when its oldest batch is old enough, even if nobody writes."""
        self._check_online()
        self._writers.forget_expired(now_ms)
        if self.in_group or self._chain.active.empty or not self._chain_writer.is_due(0, now_ms):
            return False
        self._chain_writer.roll(self._chain.end_offset)
        return True

    def expire(
        self, *, now_ms: int, ttl_ms: int | None, bytes_max: int | None, keep_from: int | None = None
    ) -> ExpiredSegments:
        """Remove the oldest segments that are too old or exceed ``bytes_max``; the end offset stays.

        The active segment is sealed first when its oldest batch is older than ``ttl_ms``. While a checkpoint is under
        way, or a group is open, nothing expires: the next call will do it.
        """
        self._check_online()
        if self._sync.checkpoint_under_way or self.in_group:
            return ExpiredSegments(0, 0, self.start_offset)
        active = self._chain.active
        if ttl_ms is not None and not active.empty and active.first_timestamp_ms + ttl_ms < now_ms:
            self._chain_writer.roll(self._chain.end_offset)
        gone = expired_segments(
            self._chain, now_ms=now_ms, ttl_ms=ttl_ms, bytes_max=bytes_max, keep_from=keep_from
        )
        self._remove_oldest(gone)
        return ExpiredSegments(len(gone), sum(segment.log_size for segment in gone), self.start_offset)

    def surplus(self, *, now_ms: int, ttl_ms: int | None, keep_from: int, segments_min: int) -> int:
        """Where the oldest segments end that need not be here once they are elsewhere; 0 when there are none.

        They are older than ``ttl_ms`` and end at or before ``keep_from``; ``segments_min`` stay in any case.
        """
        gone = expired_segments(
            self._chain,
            now_ms=now_ms,
            ttl_ms=ttl_ms,
            bytes_max=None,
            keep_from=keep_from,
            segments_min=segments_min,
        )
        return gone[-1].sealed_end if gone else 0

    def drop_before(self, offset: int) -> int:
        """Remove the segments that end at or before ``offset``; the number of those removed.

        While a checkpoint is under way, or a group is open, nothing goes: the next call will do it.
        """
        self._check_online()
        gone = [one for one in self._chain.segments[:-1] if one.sealed_end <= offset]
        if self._sync.checkpoint_under_way or self.in_group:
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

        A new epoch begins, except in a replicated log. Busy while a checkpoint is under way. Not while a reader was
        given an ``until`` above the cut.
        """
        self._check_online()
        return self._end.truncate(to_offset)

    def base_files(self, *, from_offset: int, until: int) -> list[PinnedFile]:
        """The files of a copy that has the records from ``from_offset`` on and ends at ``until`` (base_files.py)."""
        return base_files(self._chain, self.groups, self._writers, from_offset=from_offset, until=until)

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
        """A checkpoint to be written, when enough was appended since the last one, none is under way, no group open.

        The caller must call its ``write``, then ``checkpointed``.
        """
        self._check_online()
        due = self._sync.bytes_since_checkpoint >= self._settings.checkpoint_bytes and not self.in_group
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
