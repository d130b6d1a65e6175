"""How much of a log is durable, and what a sync covers.

A sync point or a pending checkpoint is taken out of the log beside the appender, performed in any thread, and handed
back. It holds the files itself, so it stays valid when the log moves on. If it fails, the caller takes the log offline:
after a failed sync nobody knows what the disk has.
"""

from __future__ import annotations

from collections.abc import Sequence

from strom.log import layout as at
from strom.log.chain import Chain
from strom.log.checkpoint import Checkpoint
from strom.log.index import Anchor
from strom.log.segment import Segment
from strom.log.writers import Writers
from strom.runtime.files import File, Files

NO_CHECKPOINT = -1


class SyncPoint:
    """Everything below ``end_offset``, to be made durable."""

    __slots__ = ("_files", "_folder", "_targets", "end_offset", "folder_changes", "generation")

    def __init__(
        self,
        files: Files,
        targets: Sequence[File],
        folder: str | None,
        *,
        end_offset: int,
        folder_changes: int,
        generation: int,
    ) -> None:
        self._files = files
        self._targets = targets
        self._folder = folder
        self.end_offset = end_offset
        self.folder_changes = folder_changes
        self.generation = generation

    def sync(self) -> None:
        """Make it durable. Blocks; may run in any thread."""
        for target in self._targets:
            target.sync()
        if self._folder is not None:
            # A file that was just created is found again after power loss only with its folder.
            self._files.sync_folder(self._folder)


class PendingCheckpoint:
    """A checkpoint that waits for its files to be durable."""

    __slots__ = ("_files", "_path", "checkpoint", "point", "under_way")

    def __init__(self, files: Files, path: str, point: SyncPoint, checkpoint: Checkpoint) -> None:
        self._files = files
        self._path = path
        self.point = point
        self.checkpoint = checkpoint
        self.under_way = True

    def write(self) -> None:
        """Sync what it names, then write it. Blocks; may run in any thread."""
        try:
            self.point.sync()
            self._files.write_whole(self._path, self.checkpoint.encode())
        finally:
            self.under_way = False


class SyncState:
    """Up to where a log is durable, and up to where a checkpoint says so."""

    def __init__(self, files: Files, folder: str, chain: Chain, *, checkpointed: bool) -> None:
        """Opening a log made everything in it durable; ``checkpointed``: a checkpoint says so."""
        end_offset = chain.end_offset
        self._files = files
        self._folder = folder
        self._chain = chain
        #: Below this, sidecars are durable too.
        self._sidecars_end = end_offset
        self._checkpoint_end = end_offset if checkpointed else NO_CHECKPOINT
        # Two numbers, because two threads may raise them; the higher one counts.
        self._synced_end = end_offset
        self._checkpointed_end = end_offset
        self.bytes_since_checkpoint = 0
        self._folder_changes = self._folder_synced = 0
        self._generation = 0
        self._pending: PendingCheckpoint | None = None
        #: The file of groups, and where the newest group ends; the group is durable only once the file is.
        self._group_file: File | None = None
        self._group_end = 0

    @property
    def synced_end(self) -> int:
        """Everything below is durable."""
        return max(self._synced_end, self._checkpointed_end)

    @property
    def checkpoint_under_way(self) -> bool:
        """Whether a checkpoint was handed out and is not written yet."""
        return self._pending is not None and self._pending.under_way

    def is_checkpointed(self, end_offset: int) -> bool:
        """Whether the checkpoint covers all of a log that ends there."""
        return self._checkpoint_end == end_offset

    def rolled(self) -> None:
        """A segment was sealed: the checkpoint names one that is no longer active."""
        self._checkpoint_end = NO_CHECKPOINT

    def folder_changed(self) -> None:
        """A file was created."""
        self._folder_changes += 1

    def group_closed(self, file: File, end_offset: int) -> None:
        """``file`` records a group that ends at ``end_offset``, the end of the log from now on."""
        self._group_file, self._group_end = file, end_offset

    def release(self) -> None:
        """Let go of the files: a checkpoint that was written still holds those that it synced."""
        self._group_file = None
        if not self.checkpoint_under_way:
            self._pending = None

    def point(self, end_offset: int) -> SyncPoint:
        """What makes everything below ``end_offset`` durable."""
        return self._point(end_offset, self.synced_end, sidecars=False)

    def _point(self, end_offset: int, from_offset: int, *, sidecars: bool) -> SyncPoint:
        folder_changes = self._folder_changes
        targets: list[File] = []
        for segment in self._chain.segments:
            behind = segment.end_offset is None or segment.end_offset > from_offset
            if behind and segment.base_offset < end_offset:
                files = self._chain.files_of(segment)
                targets.append(files.log)
                if sidecars and files.sidecar is not None:
                    targets.append(files.sidecar)
        if self._group_file is not None and self._group_end > from_offset:
            targets.append(self._group_file)
        return SyncPoint(
            self._files,
            targets,
            self._folder if folder_changes != self._folder_synced else None,
            end_offset=end_offset,
            folder_changes=folder_changes,
            generation=self._generation,
        )

    def synced(self, point: SyncPoint) -> None:
        """A point was synced."""
        # Otherwise the log was truncated since: the point was about other records.
        if point.generation == self._generation:
            self._folder_synced = max(self._folder_synced, point.folder_changes)
            self._synced_end = max(self._synced_end, point.end_offset)

    def pending_checkpoint(self, segment: Segment, end: Anchor, writers: Writers) -> PendingCheckpoint:
        """A checkpoint of the log up to ``end``, which lies in ``segment``."""
        assert not self.checkpoint_under_way, "two checkpoints would write one file"
        self.bytes_since_checkpoint = 0
        checkpoint = Checkpoint(
            segment.base_offset,
            end.position,
            end.sidecar_position,
            end.offset,
            self._chain.newest_timestamp_ms,
            writers.snapshot(),
        )
        point = self._point(checkpoint.end_offset, self._sidecars_end, sidecars=True)
        path = f"{self._folder}/{at.CHECKPOINT_NAME}"
        self._pending = PendingCheckpoint(self._files, path, point, checkpoint)
        return self._pending

    def checkpointed(self, pending: PendingCheckpoint) -> None:
        """A checkpoint was written."""
        if pending.point.generation == self._generation:
            self._folder_synced = max(self._folder_synced, pending.point.folder_changes)
            end_offset = pending.checkpoint.end_offset
            self._checkpointed_end = self._checkpoint_end = self._sidecars_end = end_offset

    def truncated(self, end_offset: int) -> None:
        """The log was cut and is durable up to its end; points taken before are void."""
        self._generation += 1
        self._synced_end = self._checkpointed_end = end_offset
        self._checkpoint_end = self._sidecars_end = end_offset
