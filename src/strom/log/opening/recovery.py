"""Opening a log: find what is there, trust what is proven, cut what is torn.

Up to the checkpoint everything is trusted unread, because it was synced. After it every batch is checked
(segment_scan.py).
``durable_end`` is the highest offset below which everything is known to have been durable: the checkpoint's, or the
highest that any entry read here records. Where trust ends

    at or after it    the tail is torn: it is cut, with all segments behind it
    before it         something durable is damaged: nothing is cut; the log goes on behind it, in the next segment
                      or a new one, and reads of the damage raise

A log without a sound checkpoint is checked from its beginning. Nothing here fails because of what files contain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from strom.log import layout as at
from strom.log.chain import open_if_there, read_index
from strom.log.checkpoint import Checkpoint, decode_checkpoint
from strom.log.epochs import Epochs, EpochStart, decode_epochs
from strom.log.index import Anchor, SegmentIndex
from strom.log.opening.mend import load_index, rebuild_sidecar, remove_segment, write_index
from strom.log.opening.segment_scan import SegmentScan, StoredEntries
from strom.log.segment import Segment, SegmentFiles
from strom.log.settings import LogSettings
from strom.log.sidecar import SidecarEntry
from strom.log.writers import Writers
from strom.runtime.files import TEMPORARY_SUFFIX, Files


@dataclass
class RecoveryReport:
    """What opening a log had to do. Nothing after a clean stop."""

    clean: bool = True
    bytes_scanned: int = 0
    bytes_cut: int = 0
    batches_damaged: int = 0
    entries_made: int = 0
    holes: list[tuple[int, int]] = field(default_factory=list)
    """Offsets [from, until) in which something durable can no longer be read."""


class Recovered(NamedTuple):
    """A log as it was found."""

    segments: tuple[Segment, ...]
    end_offset: int
    last_timestamp_ms: int
    epochs: Epochs
    writers: Writers
    report: RecoveryReport
    durable_end: int
    """Everything below was durable before the stop."""


def read_checkpoint(files: Files, folder: str) -> Checkpoint | None:
    """The checkpoint of a log, or None when there is no sound one."""
    path = f"{folder}/{at.CHECKPOINT_NAME}"
    return decode_checkpoint(files.read_whole(path)) if files.exists(path) else None


class Recovery:
    """Opens one log."""

    def __init__(self, files: Files, folder: str, settings: LogSettings) -> None:
        self._files = files
        self._folder = folder
        self._interval_bytes = settings.index_interval_bytes
        self._writer_expiry_ms = settings.writer_expiry_ms
        self._report = RecoveryReport()
        self._checkpoint: Checkpoint | None = None
        self._epochs = Epochs()
        self._segments: list[Segment] = []
        self._writers = Writers(expiry_ms=settings.writer_expiry_ms)
        self._last_timestamp_ms = at.NO_TIMESTAMP
        self._durable_end = 0
        self._end_offset = 0
        self._touched: list[Segment] = []

    def run(self, *, now_ms: int) -> Recovered:
        """Repair the files and return what they hold."""
        self._checkpoint = read_checkpoint(self._files, self._folder)
        self._list_segments()
        self._read_epochs()
        if self._checkpoint is not None:
            self._durable_end = self._checkpoint.end_offset
            self._last_timestamp_ms = self._checkpoint.last_timestamp_ms
        if not self._segments:
            self._begin_without_segments()
        else:
            self._recover_from(*self._first_place())
        self._sync()
        self._writers.forget_expired(now_ms)
        return Recovered(
            tuple(self._segments),
            self._end_offset,
            self._last_timestamp_ms,
            self._epochs,
            self._writers,
            self._report,
            self._durable_end,
        )

    # --- what is there ---------------------------------------------------------------------------------------------

    def _list_segments(self) -> None:
        names = self._files.list(self._folder)
        bases = sorted(base for name in names if (base := at.base_offset_of(name)) is not None)
        stems = {at.segment_name(base, "") for base in bases}
        for name in names:
            stem, _, suffix = name.partition(".")
            orphan = f".{suffix}" in (at.SIDECAR_SUFFIX, at.INDEX_SUFFIX) and stem not in stems
            if orphan or name.endswith(TEMPORARY_SUFFIX):
                self._files.remove(f"{self._folder}/{name}")
        for number, base in enumerate(bases):
            segment = Segment(self._folder, base, end_offset=bases[number + 1] if base != bases[-1] else None)
            segment.log_size = self._files.size(segment.log_path)
            segment.created = True
            self._segments.append(segment)

    def _read_epochs(self) -> None:
        path = f"{self._folder}/{at.EPOCHS_NAME}"
        if self._files.exists(path):
            self._epochs = decode_epochs(self._files.read_whole(path))
        else:
            ever_written = self._checkpoint is not None and self._checkpoint.end_offset > 0
            self._epochs = Epochs(
                damaged=ever_written or any(not segment.empty for segment in self._segments)
            )
        if self._epochs.damaged:
            self._epochs = self._epochs.merged(self._epochs_seen())

    def _epochs_seen(self) -> Iterator[EpochStart]:
        """The epochs that the sidecars record."""
        for segment in self._segments:
            for entry in StoredEntries(open_if_there(self._files, segment.sidecar_path)).walk():
                yield EpochStart(entry.epoch, entry.base_offset)

    # --- where to begin --------------------------------------------------------------------------------------------

    def _first_place(self) -> tuple[int, Anchor]:
        """The segment and the place in it from which everything is checked."""
        checkpoint = self._checkpoint
        if checkpoint is not None:
            for number, segment in enumerate(self._segments):
                if segment.base_offset == checkpoint.segment_base_offset:
                    self._writers = Writers(expiry_ms=self._writer_expiry_ms, states=checkpoint.writers)
                    return number, Anchor(checkpoint.end_offset, checkpoint.log_size, checkpoint.sidecar_size)
            if self._segments[0].base_offset >= checkpoint.end_offset:
                self._writers = Writers(expiry_ms=self._writer_expiry_ms, states=checkpoint.writers)
            else:
                self._last_timestamp_ms = at.NO_TIMESTAMP  # the checkpoint's is not yet reached
        return 0, _start(self._segments[0])

    def _recover_from(self, number: int, anchor: Anchor) -> None:
        if self._is_clean(number, anchor):
            self._end_offset = anchor.offset
            return
        self._report.clean = False
        self._raise_durable_end(number, anchor)
        while True:
            segment = self._segments[number]
            end = self._recover_segment(segment, anchor)
            follows = (
                end is not None and end.position == segment.log_size and end.offset == segment.end_offset
            )
            if end is not None and end.offset >= self._durable_end and not follows:
                self._cut_behind(number, end)
                return
            if not follows:
                self._leave_hole(segment, end)
            number += 1
            if number == len(self._segments):
                self._begin_behind(self._durable_end)
                return
            anchor = _start(self._segments[number])

    def _is_clean(self, number: int, anchor: Anchor) -> bool:
        """Whether the checkpoint covers all of the log; then only the index is read."""
        segment = self._segments[number]
        if segment.end_offset is not None or segment.log_size != anchor.position or self._checkpoint is None:
            return False
        if not self._files.exists(segment.sidecar_path):
            return False
        found = read_index(self._files, segment, self._epochs, interval_bytes=self._interval_bytes)
        if found is None or self._files.size(segment.sidecar_path) != anchor.sidecar_position:
            return False
        segment.index, facts = found
        segment.sidecar_size = anchor.sidecar_position
        segment.first_timestamp_ms, segment.last_timestamp_ms = facts[-2:]
        return True

    def _raise_durable_end(self, number: int, anchor: Anchor) -> None:
        """Entries record how far the log was synced: that is proof, whatever became of the checkpoint."""
        position = anchor.sidecar_position
        for segment in self._segments[number:]:
            for entry in StoredEntries(open_if_there(self._files, segment.sidecar_path)).walk(position):
                self._durable_end = max(self._durable_end, min(entry.synced_end, entry.base_offset))
            position = at.SIDECAR_HEADER_SIZE

    # --- one segment -----------------------------------------------------------------------------------------------

    def _recover_segment(self, segment: Segment, anchor: Anchor) -> Anchor | None:
        """Check a segment from ``anchor`` on; returns where trust ends, None when that is before ``anchor``."""
        if segment.log_size < anchor.position:
            return None
        opened = self._open(segment)
        if opened.sidecar is None or opened.sidecar.size() < anchor.sidecar_position:
            if not rebuild_sidecar(self._files, segment, opened, self._epochs, until=anchor.position):
                return None
            self._report.entries_made += 1
            self._touched.append(segment)
            opened = self._open(segment)
        segment.index = self._index_until(segment, anchor)
        segment.last_timestamp_ms = self._last_timestamp_ms if anchor.position else at.NO_TIMESTAMP
        scan = SegmentScan(
            self._files,
            segment,
            replace(opened, index=segment.index),
            anchor,
            epochs=self._epochs,
            durable_end=self._durable_end,
            last_timestamp_ms=self._last_timestamp_ms,
            on_entry=self._replay,
        )
        scan.run()
        self._note(segment, anchor, scan)
        return scan.place

    def _open(self, segment: Segment) -> SegmentFiles:
        index = segment.index or SegmentIndex(segment.base_offset, interval_bytes=self._interval_bytes)
        log = self._files.open(segment.log_path)
        return SegmentFiles(log, open_if_there(self._files, segment.sidecar_path), index)

    def _note(self, segment: Segment, anchor: Anchor, scan: SegmentScan) -> None:
        report = self._report
        report.bytes_scanned += segment.log_size - anchor.position
        report.batches_damaged += scan.batches_damaged
        report.entries_made += scan.entries_made
        self._touched.append(segment)
        if segment.end_offset is not None and segment.index is not None:
            if scan.whole:
                write_index(self._files, segment, segment.index, self._epochs, end_offset=scan.place.offset)
            segment.index = None

    def _replay(self, entry: SidecarEntry) -> None:
        self._last_timestamp_ms = max(self._last_timestamp_ms, entry.timestamp_ms)
        self._writers.replay(entry)

    # --- where trust ends ------------------------------------------------------------------------------------------

    def _cut_behind(self, number: int, end: Anchor) -> None:
        """Remove what lies behind ``end``: nothing of it was durable. The segment becomes the active one."""
        for segment in reversed(self._segments[number + 1 :]):
            self._report.bytes_cut += segment.log_size
            remove_segment(self._files, segment)
        del self._segments[number + 1 :]
        segment = self._segments[number]
        if segment.log_size > end.position:
            self._report.bytes_cut += segment.log_size - end.position
            self._files.open(segment.log_path).truncate(end.position)
            segment.log_size = end.position
        if segment.index is None:
            segment.index = self._index_until(segment, end)
        segment.end_offset = None
        self._end_offset = end.offset

    def _index_until(self, segment: Segment, end: Anchor) -> SegmentIndex:
        return load_index(
            self._files,
            segment,
            self._open(segment),
            self._epochs,
            until=end,
            interval_bytes=self._interval_bytes,
        )

    def _leave_hole(self, segment: Segment, end: Anchor | None) -> None:
        """Durable batches cannot be read to the segment's end: they stay, and the log goes on behind them."""
        if segment.end_offset is None:
            segment.end_offset = self._durable_end
        segment.index = None
        self._report.holes.append((segment.base_offset if end is None else end.offset, segment.end_offset))

    def _begin_without_segments(self) -> None:
        """Go on where a new log, one that goes on behind the lake, or a copy that has nothing but its base begins."""
        starts = self._epochs.starts
        self._begin_behind(max(self._durable_end, starts[-1].start_offset if starts else 0))
        if self._checkpoint is not None and self._checkpoint.end_offset == self._end_offset:
            self._writers = Writers(expiry_ms=self._writer_expiry_ms, states=self._checkpoint.writers)

    def _begin_behind(self, offset: int) -> None:
        """Go on at ``offset``, in a segment that the first append creates."""
        self._segments.append(Segment(self._folder, offset))
        self._end_offset = offset

    def _sync(self) -> None:
        for segment in self._touched:
            self._files.open(segment.log_path).sync()
            self._files.open(segment.sidecar_path).sync()
        if self._touched:
            self._files.sync_folder(self._folder)


def _start(segment: Segment) -> Anchor:
    return Anchor(segment.base_offset, 0, at.SIDECAR_HEADER_SIZE)
