"""A log with groups: some batches become visible as one, with the number of the decision that published them.

Invariants
    1. An open group exists for nobody but its writer: ``end_offset``, and with it all that is synced, checkpointed and
       read, stays at the group's start until the group is closed; then it moves behind all of it at once.
    2. What tells of an open group is durable before the group's first batch is written, so a crash leaves the group
       closed and whole, or opening the log cuts it.
    3. ``synced_end`` passes a group only once what tells of its closing is durable too.
    4. No cut goes through a group.

``begin_group``, ``append_to_group``, ``close_group``, ``abort_group`` and ``drop_before`` belong to the hand that
appends. Between ``begin_group`` and the close or the abort nothing else is done to the log. Appends outside groups are
the plain log's, unchanged.
"""

from __future__ import annotations

from typing import NamedTuple

from strom.errors import ChecksumMismatch, Retry, StorageFull, StorageOffline
from strom.log import layout as at
from strom.log.active import publish_batch, write_batch
from strom.log.groups import Group, Groups, Origin, decode_groups, encode_closed, encode_open
from strom.log.index import Anchor
from strom.log.log import Appended
from strom.log.marked_log import MarkedLog
from strom.log.opening.mend import cut_behind
from strom.log.opening.recovery import Recovered, Recovery
from strom.log.segment import Segment
from strom.log.settings import LogSettings
from strom.log.sidecar import encode_entry
from strom.record.batch import Checked, stamp
from strom.runtime.files import File, Files

GROUPS_IN_FILE_MAX = 512
"""So many groups in the file, and it is written anew with the newest ones."""


class _OpenGroup(NamedTuple):
    """Where the group that is being written began."""

    origin: Origin
    segment: Segment
    start: Anchor
    last_timestamp_ms: int


class GroupedLog(MarkedLog):
    """One bucket's log, with groups."""

    def __init__(self, files: Files, folder: str, settings: LogSettings, found: Recovered) -> None:
        """Use ``GroupedLog.open``."""
        super().__init__(files, folder, settings, found)
        self.groups = Groups()
        self._group_path = f"{folder}/{at.GROUPS_NAME}"
        self._group_file: File | None = None
        self._groups_sound = True
        """Whether the file tells of ``groups`` and nothing else; otherwise it is written anew before the next batch."""
        self._groups_in_file = 0
        self._open_group: _OpenGroup | None = None
        self._write_end = 0
        self._group_rows = 0

    @staticmethod
    def open(files: Files, folder: str, settings: LogSettings, now_ms: int) -> GroupedLog:
        """Open a log, or begin one; a group that was not closed is cut off."""
        recovery = Recovery(
            files,
            folder,
            interval_bytes=settings.index_interval_bytes,
            writer_expiry_ms=settings.writer_expiry_ms,
        )
        try:
            found = recovery.run(now_ms=now_ms)
            log = GroupedLog(files, folder, settings, found)
            log._find_groups(log.end_offset if found.report.clean else found.durable_end)
        except OSError as error:
            raise StorageOffline(
                f"the disk failed while {folder} was opened: {error}", folder=folder
            ) from error
        if not log.report.clean:
            log._checkpoint_if_room()
        return log

    # --- opening -----------------------------------------------------------------------------------------------------

    def _find_groups(self, durable_end: int) -> None:
        if not self._files.exists(self._group_path):
            return
        found = decode_groups(self._files.read_whole(self._group_path))
        groups, opened, self._groups_sound = found
        if opened is not None:
            self._groups_sound = False
            if durable_end > opened.start_offset:
                # It was closed, for nothing inside a group is durable before that; only the record of it is damaged.
                groups = groups.with_group(opened._replace(end_offset=durable_end))
                opened = None
        torn = next((group for group in groups.closed if group.end_offset > self._end_offset), opened)
        if torn is not None and torn.start_offset >= durable_end:
            self._groups_sound = False
            groups = groups.until(torn.start_offset)
            if torn.start_offset < self._end_offset:
                self._cut(torn.start_offset)
        self.groups = groups
        self._groups_in_file = len(groups.closed)
        self._group_file = self._files.open(self._group_path)
        self._group_file.sync()  # the log was made durable when it was opened, and so is what tells of its groups

    def _cut(self, offset: int) -> None:
        """At opening: cut an open group off, and what came behind it: to its writers, too, it never was there."""
        segment, _, walk, entry = self._chain.locate(offset)
        try:
            self._forget_writers_behind(entry.base_offset)
        except ChecksumMismatch:
            pass  # what lies behind a damaged batch is not known: its writers are told that they are out of order
        sidecar_position = walk.sidecar_position - entry.entry_size
        self._cut_at(segment, Anchor(entry.base_offset, entry.position, sidecar_position))
        self._sync.truncated(self._end_offset)
        self._sync.rolled()

    def _cut_at(self, segment: Segment, end: Anchor) -> None:
        """Nothing behind ``end`` was durable or visible, so no checkpoint has to say first that it goes."""
        self._end_offset = end.offset
        cut_behind(self._files, self._chain, segment, self._chain.files_of(segment), end)
        self._sync.rolled()  # the checkpoint is not about all of the log
        self._chain.epochs = self._chain.epochs.begin(end.offset, log_start=self.start_offset)
        self._epoch_durable = False

    # --- groups ------------------------------------------------------------------------------------------------------

    def begin_group(self, origin: Origin) -> int:
        """Begin a group at the end of the log; returns its start. StorageFull leaves everything as it was."""
        self._check_online()
        assert self._open_group is None
        assert origin.number > self.groups.newest
        if not self._epoch_durable:
            self._begin_epoch()
        if origin.overwrite and not self._chain.active.empty:
            self._roll(self._end_offset)  # so that what is overwritten can go segment by segment
        try:
            self._tell_of_open(origin)
        except OSError as error:
            raise self._failed("begin a group", error) from error
        segment = self._chain.active
        start = Anchor(self._end_offset, segment.log_size, segment.sidecar_size)
        self._open_group = _OpenGroup(origin, segment, start, self._last_timestamp_ms)
        self._write_end = self._end_offset
        self._group_rows = 0
        return self._end_offset

    def _tell_of_open(self, origin: Origin) -> None:
        record = encode_open(origin, self._end_offset)
        if self._group_file is None or not self._groups_sound or self._groups_in_file >= GROUPS_IN_FILE_MAX:
            self._write_groups(record)
        else:
            self._group_file.append([record])
            self._group_file.sync()

    def _write_groups(self, record: bytes = b"") -> None:
        """Write the file anew, with the groups that are kept and maybe one that is about to begin."""
        groups = self.groups.trimmed()
        self._files.write_whole(self._group_path, groups.encode() + record)
        self.groups = groups
        self._group_file = self._files.open(self._group_path)
        self._groups_sound = True
        self._groups_in_file = len(groups.closed)

    def _begin_epoch(self) -> None:
        """Before the first batch of an epoch: nothing may be told of groups that are no more."""
        if not self._groups_sound:
            try:
                self._write_groups()
            except OSError as error:
                raise self._failed("write the groups", error) from error
        super()._begin_epoch()

    def append_to_group(self, view: memoryview, checked: Checked, *, now_ms: int) -> Appended:
        """Append one checked batch to the open group, as ``append`` does; it has no writer."""
        self._check_online()
        assert self._open_group is not None
        header, columns, buffer_crcs, _ = checked
        base_offset = self._write_end
        segment = self._chain.active
        if not segment.empty and self._is_due(segment, header.size, now_ms):
            self._roll(base_offset)
            segment = self._chain.active
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
        self._last_timestamp_ms = timestamp_ms
        self._sync.bytes_since_checkpoint += header.size
        self._group_rows += header.record_count
        self._write_end = base_offset + header.last_offset_delta + 1
        return Appended(base_offset, self._write_end, False)

    def close_group(self) -> Group:
        """Everything is in it: from now on it is in the log, whole. StorageFull leaves it open."""
        self._check_online()
        opened, file = self._open_group, self._group_file
        assert opened is not None
        assert file is not None
        assert self._write_end > opened.start.offset, "a group has at least one offset"
        group = Group(opened.origin, opened.start.offset, self._write_end, no_rows=not self._group_rows)
        try:
            file.append([encode_closed(group)])
        except OSError as error:
            raise self._failed("close a group", error) from error
        self._groups_in_file += 1
        self.groups = self.groups.with_group(group)
        self._sync.group_closed(file, group.end_offset)
        self._open_group = None
        self._end_offset = group.end_offset  # last: this is what readers go by
        if group.no_rows and group.origin.overwrite:
            self._roll_if_room()  # so that the empty batch can go too
        return group

    def _roll_if_room(self) -> None:
        try:
            self._roll(self._end_offset)
        except StorageFull:
            pass  # then the log starts with the empty batch

    def abort_group(self) -> int:
        """Take back what was written of the open group; needs no room. Returns where the log ends, as before it."""
        opened = self._open_group
        assert opened is not None
        self._open_group = None
        self._groups_sound = False
        if self._offline is None:
            try:
                # Also when nothing was written: a new epoch begins, and with it the file is written anew.
                self._cut_at(opened.segment, opened.start)
            except (OSError, Retry) as error:  # whatever it was: half of it may be done
                raise self._failed("take back a group", error) from error
            self._last_timestamp_ms = opened.last_timestamp_ms
        return self._end_offset

    @property
    def in_group(self) -> bool:
        """Whether a group is open."""
        return self._open_group is not None

    @property
    def group_end(self) -> int:
        """Where the open group ends so far."""
        return self._write_end

    # --- cutting -----------------------------------------------------------------------------------------------------

    def truncate(self, to_offset: int) -> int:
        """As the plain log, and a group is cut whole."""
        end = super().truncate(self.groups.boundary(to_offset))
        if self.groups.closed and self.groups.closed[-1].end_offset > end:
            self.groups = self.groups.until(end)
            self._groups_sound = False
        return end

    def drop_before(self, offset: int) -> int:
        """Remove the segments that end at or before ``offset``; the number of those removed.

        While a checkpoint is under way nothing goes: the next call will do.
        """
        self._check_online()
        gone = [
            one
            for one in self._chain.segments[:-1]
            if one.end_offset is not None and one.end_offset <= offset
        ]
        if not gone or self._sync.checkpoint_under_way:
            return 0
        self.checkpoint()  # what writers gave in these segments must be in a checkpoint before it is nowhere else
        for segment in gone:
            self._remove_first(segment)
        return len(gone)
