"""Changing a chain of segments: batches are added at its end, segments rolled, removed from its start, mended.

Batch and sidecar entry are written together or not at all: a write that fails half-way is cut back. One thread at a
time uses a ``ChainWriter``; readers of the chain may be in other threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from strom.errors import StorageFull
from strom.log.chain import Chain
from strom.log.health import Health
from strom.log.index import SegmentIndex
from strom.log.opening.mend import rebuild_sidecar, remove_segment, write_index
from strom.log.segment import Segment, SegmentFiles
from strom.log.settings import LogSettings
from strom.log.sidecar import encode_entry, encode_header
from strom.log.sync import SyncState
from strom.record.batch import Checked, stamp
from strom.runtime.files import Bytes, Files


class ChainWriter:
    """The one writer of a log's segments."""

    def __init__(
        self,
        files: Files,
        folder: str,
        settings: LogSettings,
        chain: Chain,
        sync: SyncState,
        health: Health,
        *,
        lasting_cuts: bool = False,
    ) -> None:
        """``lasting_cuts``: what a failed write left is gone for good before another takes its place.

        In a replicated log the other may be in the same epoch, and power loss must not bring back the first one.
        """
        self._files = files
        self._folder = folder
        self._settings = settings
        self._chain = chain
        self._sync = sync
        self._health = health
        self._lasting_cuts = lasting_cuts

    # --- the active segment ------------------------------------------------------------------------------------------

    def write(self, view: memoryview, checked: Checked, *, base_offset: int, now_ms: int) -> int:
        """Append a checked batch at ``base_offset``, the end of the chain; returns the timestamp it was stamped with.

        Rolls first when a segment is due.
        """
        timestamp_ms = max(now_ms, self._chain.newest_timestamp_ms)
        stamp(view, base_offset=base_offset, timestamp_ms=timestamp_ms)
        self.write_stamped(view, checked, base_offset=base_offset, timestamp_ms=timestamp_ms, now_ms=now_ms)
        return timestamp_ms

    def write_stamped(
        self, view: memoryview, checked: Checked, *, base_offset: int, timestamp_ms: int, now_ms: int
    ) -> None:
        """As ``write``, for a batch that has its offset and timestamp already."""
        header, columns, buffer_crcs, _ = checked
        chain = self._chain
        segment = chain.active
        if not segment.empty and self.is_due(header.size, now_ms):
            self.roll(base_offset)
            segment = chain.active
        entry = encode_entry(
            view,
            header,
            columns.buffers,
            head_size=columns.head_size,
            base_offset=base_offset,
            timestamp_ms=timestamp_ms,
            position=segment.log_size,
            epoch=chain.epochs.latest,
            synced_end=self._sync.synced_end,
            buffer_crcs=buffer_crcs,
        )
        try:
            _write_both(segment, chain.files_of(segment), view, entry, lasting_cuts=self._lasting_cuts)
        except OSError as error:
            raise self._health.failed("write", error) from error
        _publish(segment, base_offset, timestamp_ms, batch_size=header.size, entry_size=len(entry))
        chain.newest_timestamp_ms = timestamp_ms
        self._sync.bytes_since_checkpoint += header.size

    def is_due(self, size: int, now_ms: int) -> bool:
        """Whether the active segment, which is not empty, is too old, or too full for another ``size`` bytes."""
        segment, settings = self._chain.active, self._settings
        return (
            segment.log_size + size > settings.segment_bytes
            or now_ms - segment.first_timestamp_ms >= settings.roll_ms
        )

    def create(self, segment: Segment) -> None:
        """Create a segment's files, unless they exist."""
        if segment.created:
            return
        self._files.make_folder(self._folder)
        # Whatever has their names is left from a crash.
        log = self._files.open(segment.log_path, create=True)
        sidecar = self._files.open(segment.sidecar_path, create=True)
        log.truncate(0)
        sidecar.truncate(0)
        sidecar.append([encode_header(segment.base_offset)])
        segment.index = SegmentIndex(segment.base_offset, interval_bytes=self._settings.index_interval_bytes)
        segment.files = SegmentFiles(log, sidecar, segment.index)
        segment.created = True
        self._sync.folder_changed()

    def roll(self, end_offset: int) -> None:
        """Seal the active segment, which ends at ``end_offset``, and begin the next one."""
        sealed = self._chain.active
        following = Segment(self._folder, end_offset)
        try:
            files = self._chain.files_of(sealed)
            if self._settings.sync_on_roll:
                # A later segment then proves that the earlier ones are durable.
                files.log.sync()
            write_index(self._files, sealed, files.index, self._chain.epochs, end_offset=end_offset)
            self.create(following)
        except StorageFull:
            remove_segment(self._files, following)
            raise
        except OSError as error:
            raise self._health.failed("roll", error) from error
        self._chain.keep_open(sealed, files)
        sealed.end_offset = end_offset
        self._chain.segments = (*self._chain.segments, following)
        sealed.files = sealed.index = None
        self._sync.rolled()

    # --- sealed segments ---------------------------------------------------------------------------------------------

    def remove_oldest(self, segments: Sequence[Segment]) -> None:
        """Remove ``segments``, the first ones of the chain."""
        for segment in segments:
            self._chain.segments = self._chain.segments[1:]
            self._chain.forget(segment)
            try:
                remove_segment(self._files, segment)
                # One by one, so that power loss can never leave a gap in the middle.
                self._files.sync_folder(self._folder)
            except OSError as error:
                raise self._health.failed("remove a segment", error) from error

    def mend(self) -> int:
        """Rebuild sidecars and indexes that readers found damaged; the number of segments mended."""
        worn = [segment for segment in self._chain.segments if segment.worn and segment.sealed]
        return sum(self._mend(segment) for segment in worn)

    def _mend(self, segment: Segment) -> bool:
        segment.worn = False
        files, epochs = self._chain.files_of(segment), self._chain.epochs
        try:
            if not rebuild_sidecar(self._files, segment, files, epochs):
                return False
        except StorageFull:
            return False
        segment.sidecar_size = self._files.size(segment.sidecar_path)
        write_index(self._files, segment, files.index, epochs, end_offset=segment.sealed_end)
        self._chain.forget(segment)
        return True


def _write_both(
    segment: Segment, opened: SegmentFiles, view: Bytes, entry: Bytes, *, lasting_cuts: bool
) -> None:
    """Append a batch and its entry. On any failure, an interrupt included, both files are cut back."""
    if opened.sidecar is None:
        raise FileNotFoundError(segment.sidecar_path)
    try:
        position = opened.log.append([view])
        assert position == segment.log_size
        position = opened.sidecar.append([entry])
        assert position == segment.sidecar_size
    except BaseException:
        opened.log.truncate(segment.log_size)
        opened.sidecar.truncate(segment.sidecar_size)
        if lasting_cuts:
            opened.log.sync()
            opened.sidecar.sync()
        raise


def _publish(
    segment: Segment, base_offset: int, timestamp_ms: int, *, batch_size: int, entry_size: int
) -> None:
    """Let readers find what was written."""
    assert segment.index is not None
    segment.index.add(
        base_offset,
        timestamp_ms=timestamp_ms,
        position=segment.log_size,
        sidecar_position=segment.sidecar_size,
    )
    if segment.empty:
        segment.first_timestamp_ms = timestamp_ms
    segment.last_timestamp_ms = timestamp_ms
    segment.sidecar_size += entry_size
    segment.log_size += batch_size
