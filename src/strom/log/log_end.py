"""The end of a log, where batches are added and cut off: the epoch they get, and the group that is being written.

A log that is alone begins its epochs itself, whenever its end may have lost records: when it is opened and when it is
cut. A copy of a replicated log (``own_epochs`` False) never does: its leader is given an epoch by the metadata, and a
follower takes the epochs of the records that it pulls.

An aborted group's offsets are given again, in a copy even in the same epoch, because nobody has seen them. So nothing
of it may come back: its bytes are gone for good, and the files that told of it are corrected, before the next batch.
"""

from __future__ import annotations

from strom.errors import Busy, ChecksumMismatch, Retry, StaleEpoch, StorageFull
from strom.log import layout as at
from strom.log.chain import Chain, out_of_range
from strom.log.chain_writer import ChainWriter
from strom.log.cut_writers import cut_writers
from strom.log.damage import DamageFile
from strom.log.epochs import Epochs
from strom.log.group_file import GroupFile, OpenGroup
from strom.log.groups import Group, Origin
from strom.log.health import Health
from strom.log.index import Anchor
from strom.log.opening.mend import cut_behind
from strom.log.segment import Segment
from strom.log.sync import SyncState
from strom.log.writers import Writers
from strom.runtime.files import Files


class LogEnd:
    """Where a log is written. One thread at a time uses it."""

    def __init__(
        self,
        files: Files,
        folder: str,
        chain: Chain,
        sync: SyncState,
        writers: Writers,
        health: Health,
        *,
        chain_writer: ChainWriter,
        group_file: GroupFile,
        damage_file: DamageFile,
        own_epochs: bool,
    ) -> None:
        self._files = files
        self._folder = folder
        self._chain = chain
        self._sync = sync
        self._health = health
        self._group_file = group_file
        self._damage_file = damage_file
        self.chain_writer = chain_writer
        self.writers = writers
        self.own_epochs = own_epochs
        self.ready = False
        """Whether the next batch may be written as it is; otherwise ``prepare`` first."""
        self.group: OpenGroup | None = None
        """The group being written."""

    @property
    def offset(self) -> int:
        """The offset that the next batch gets: in an open group above the log's end."""
        return self._chain.end_offset if self.group is None else self.group.end_offset

    # --- epochs --------------------------------------------------------------------------------------------------

    def begin_epoch(self, epoch: int) -> None:
        """Lead in an epoch that the metadata gave; it is durable before its first record is written.

        StaleEpoch when the log has a record of it, or of a later one.
        """
        assert not self.own_epochs
        assert self.group is None
        chain = self._chain
        newest = chain.epochs.until(chain.end_offset).latest
        if epoch <= newest:
            raise StaleEpoch(
                f"the log has records of epoch {newest}: it cannot lead in epoch {epoch}",
                epoch=epoch,
                newest=newest,
            )
        self.take_epoch(epoch)

    def take_epoch(self, epoch: int) -> None:
        """The next records are of this epoch. StaleEpoch when the one before them is of a later one."""
        chain = self._chain
        epochs = chain.epochs.given(epoch, self.offset, log_start=chain.start_offset)
        if epochs.starts != chain.epochs.starts:
            self.ready = False
        chain.epochs = epochs

    def prepare(self) -> None:
        """Make the epoch durable, and the first segment with it.

        First, files that record groups or marks of batches that no longer exist are corrected: their offsets are about
        to be given again.
        """
        self._group_file.repair()
        self._damage_file.limit(self._chain.start_offset, self._chain.end_offset)
        try:
            self.chain_writer.create(self._chain.active)
            self._files.write_whole(f"{self._folder}/{at.EPOCHS_NAME}", self._chain.epochs.encode())
        except OSError as error:
            raise self._health.failed("begin an epoch", error) from error
        self.ready = True

    # --- groups --------------------------------------------------------------------------------------------------

    def begin_group(self, origin: Origin) -> int:
        """Begin a group at the end of the log; returns its start. StorageFull leaves everything as it was."""
        assert self.group is None
        assert origin.number > self._group_file.groups.newest
        chain = self._chain
        if not self.ready:
            self.prepare()
        if origin.overwrite and not chain.active.empty:
            self.chain_writer.roll(chain.end_offset)  # so that what is overwritten can go segment by segment
        self._group_file.begin(origin, chain.end_offset)
        segment = chain.active
        start = Anchor(chain.end_offset, segment.log_size, segment.sidecar_size)
        self.group = OpenGroup(origin, segment, start, chain.newest_timestamp_ms, chain.end_offset)
        return chain.end_offset

    def close_group(self) -> Group:
        """Make the open group visible, whole. StorageFull leaves it open."""
        opened = self.group
        assert opened is not None
        assert opened.end_offset > opened.start.offset, "a group has at least one offset"
        group = Group(opened.origin, opened.start.offset, opened.end_offset, no_rows=not opened.rows)
        self._sync.group_closed(self._group_file.close(group), group.end_offset)
        self.group = None
        self._chain.end_offset = group.end_offset  # last: this is what readers go by
        if group.no_rows and group.origin.overwrite:
            try:
                self.chain_writer.roll(self._chain.end_offset)  # so that the empty batch can go too
            except StorageFull:
                pass  # then the log starts with the empty batch
        return group

    def abort_group(self) -> int:
        """Take back what was written of the open group; needs no room. Returns where the log ends, as before it."""
        opened = self.group
        assert opened is not None
        self.group = None
        self._group_file.sound = False
        if self._health.offline is None:
            try:
                # Also when nothing was written: with the next batch the file of groups is rewritten.
                self.cut_unseen(opened.segment, opened.start, keep_epoch=True)
            except (OSError, Retry) as error:  # whatever it was: half of it may be done
                raise self._health.failed("take back a group", error) from error
            self._chain.newest_timestamp_ms = opened.previous_timestamp_ms
        return self._chain.end_offset

    def load_groups(self, durable_end: int) -> None:
        """When opening: read which groups there are, and cut off one that was not closed."""
        cut = self._group_file.load(end_offset=self._chain.end_offset, durable_end=durable_end)
        if cut is not None:
            place = self._chain.locate(cut)
            end = place.start
            try:
                self._forget_writers_behind(end.offset)
            except ChecksumMismatch:
                pass  # what lies behind a damaged batch is not known: its writers get OutOfOrderSequence
            self._chain.newest_timestamp_ms = self._timestamp_before(end.offset)
            self.cut_unseen(place.segment, end)
            self._sync.truncated(end.offset)
            self._sync.rolled()
        self._group_file.sync()  # opening made the log durable; so must be the record of its groups

    # --- cutting -------------------------------------------------------------------------------------------------

    def truncate(self, to_offset: int) -> int:
        """Cut the log so that it ends at or before ``to_offset``, between two batches or groups; returns the new end.

        Busy while a checkpoint is under way.
        """
        assert self.group is None
        chain = self._chain
        if not chain.start_offset <= to_offset <= chain.end_offset:
            raise out_of_range(chain, to_offset)
        to_offset = self._group_file.groups.boundary(to_offset)
        if to_offset == chain.end_offset:
            return to_offset
        if self._sync.checkpoint_under_way:
            raise Busy("a checkpoint of the log is being written; cut it when that is done")
        place = chain.locate(to_offset)
        end = place.start
        chain.end_offset = end.offset
        try:
            self._forget_writers_behind(end.offset)
            chain.newest_timestamp_ms = self._timestamp_before(end.offset)
            # Before anything is cut: after a crash the part behind it is there or gone, but nothing seems damaged.
            self._sync.pending_checkpoint(place.segment, end, self.writers).write()
            self._sync.truncated(end.offset)
            self._cut(place.segment, end)
        except (OSError, Retry) as error:  # whatever it was: half of it is done
            raise self._health.failed("truncate", error) from error
        self._group_file.truncated(end.offset)
        return end.offset

    def cut_unseen(self, segment: Segment, end: Anchor, *, keep_epoch: bool = False) -> None:
        """Cut off what was neither durable nor visible: no checkpoint has to say first that it goes."""
        self._chain.end_offset = end.offset
        self._cut(segment, end, keep_epoch=keep_epoch)
        self._sync.rolled()  # the checkpoint is not about all of the log

    def _cut(self, segment: Segment, end: Anchor, *, keep_epoch: bool = False) -> None:
        chain = self._chain
        opened = chain.files_of(segment)
        if not self.own_epochs:
            # Without a new epoch, an index of what is cut would be taken for one of what comes (``is_about``).
            self._files.remove(segment.index_path)
        cut_behind(self._files, chain, segment, opened, end)
        chain.epochs = self._epochs_after(end.offset, keep_epoch=keep_epoch)
        self.ready = False

    def _epochs_after(self, end_offset: int, *, keep_epoch: bool) -> Epochs:
        epochs = self._chain.epochs
        if self.own_epochs:
            return epochs.begin(end_offset, log_start=self._chain.start_offset)
        return epochs if keep_epoch else epochs.until(end_offset)

    def _timestamp_before(self, offset: int) -> int:
        """The timestamp of the batch that ends at ``offset``; none when nobody can tell."""
        if offset == self._chain.start_offset:
            return at.NO_TIMESTAMP
        try:
            return self._chain.locate(offset - 1).entry.timestamp_ms
        except ChecksumMismatch:
            return at.NO_TIMESTAMP

    def _forget_writers_behind(self, end_offset: int) -> None:
        cut_writers(self._files, self._folder, self._chain, self.writers, end_offset)
