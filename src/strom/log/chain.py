"""The chain of segments of one log, as readers see it: which segment, where in it, with which open files.

``segments`` is a tuple that is replaced, never changed, so a reader in another thread keeps a consistent chain, and
``end_offset`` rises only after everything below it can be read. Sealed segments share a few open handles; a handle that
is dropped here stays usable for the reader that holds it. A cursor remembers where a read ended, because the next read
mostly begins there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from strom.errors import ChecksumMismatch, OffsetOutOfRange
from strom.log.epochs import Epochs
from strom.log.index import Anchor, SegmentIndex, SegmentSpan, decode_index
from strom.log.segment import Segment, SegmentFiles
from strom.log.sidecar import SidecarEntry
from strom.log.walk import Walk
from strom.runtime.files import File, Files

SEALED_OPEN_MAX = 3
CURSORS_MAX = 64


class BatchPlace(NamedTuple):
    """A batch in the chain: its entry, and the walk that stands behind it."""

    segment: Segment
    files: SegmentFiles
    walk: Walk
    entry: SidecarEntry

    @property
    def start(self) -> Anchor:
        """Where the batch begins; the walk must still stand right behind it."""
        entry = self.entry
        return Anchor(entry.base_offset, entry.position, self.walk.sidecar_position - entry.entry_size)


class Chain:
    """Segments in order, the active one last."""

    def __init__(
        self,
        files: Files,
        segments: tuple[Segment, ...],
        epochs: Epochs,
        *,
        end_offset: int,
        newest_timestamp_ms: int,
        interval_bytes: int,
    ) -> None:
        assert segments
        self.segments = segments
        self.epochs = epochs
        self.end_offset = end_offset
        """The offset the next record gets; readers see everything below it."""
        self.newest_timestamp_ms = newest_timestamp_ms
        """The timestamp of the newest batch, or -1."""
        self._files = files
        self._interval_bytes = interval_bytes
        self._sealed_open: dict[int, SegmentFiles] = {}
        self._cursors: dict[int, tuple[Segment, Anchor]] = {}

    @property
    def active(self) -> Segment:
        """The segment that is written."""
        return self.segments[-1]

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""
        return self.segments[0].base_offset

    def new_index(self, base_offset: int) -> SegmentIndex:
        """An index without anchors."""
        return SegmentIndex(base_offset, interval_bytes=self._interval_bytes)

    # --- segments ----------------------------------------------------------------------------------------------

    def segment_of(self, offset: int) -> Segment:
        """The segment whose stretch holds ``offset``."""
        segments = self.segments
        index = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
        if index < 0:
            raise expired(offset, segments[0].base_offset)
        return segments[index]

    def after(self, segment: Segment) -> Segment:
        """The segment that follows a sealed one."""
        assert segment.end_offset is not None
        return self.segment_of(segment.end_offset)

    def segment_at(self, timestamp_ms: int) -> Segment:
        """The first segment that ends at or after a time, else the active one."""
        segments = self.segments
        index = bisect_left(segments, timestamp_ms, hi=len(segments) - 1, key=self.last_timestamp)
        return segments[index]

    def last_timestamp(self, segment: Segment) -> int:
        """The timestamp of a segment's last batch, read from its index when it is not known yet."""
        if segment.last_timestamp_ms < 0 and not segment.empty:
            self.files_of(segment)
        return segment.last_timestamp_ms

    def bytes_from(self, offset: int) -> int:
        """About how many bytes of batches lie between ``offset`` and the end; no file is touched."""
        total = 0
        for segment in reversed(self.segments):
            if segment.base_offset > offset:
                total += segment.log_size
                continue
            files = segment.files
            begun = files.index.before(offset).position if files is not None else 0
            return total + max(0, segment.log_size - begun)
        return total

    # --- files -------------------------------------------------------------------------------------------------

    def files_of(self, segment: Segment) -> SegmentFiles:
        """A segment's open files."""
        files = segment.files  # looked at once: another thread may seal the segment right now
        if files is not None:
            return files
        files = self._sealed_open.pop(segment.base_offset, None)
        if files is None:
            files = self._open(segment)
        if segment.end_offset is None:
            segment.files = files
        else:
            self.keep_open(segment, files)
        return files

    def keep_open(self, segment: Segment, files: SegmentFiles) -> None:
        """Keep a sealed segment's files open for the next reader; the one not used for longest gives way."""
        sealed_open = self._sealed_open
        sealed_open[segment.base_offset] = files
        while len(sealed_open) > SEALED_OPEN_MAX:
            try:
                sealed_open.pop(next(iter(sealed_open)), None)
            except (RuntimeError, StopIteration):
                pass  # another thread was faster

    def forget(self, segment: Segment) -> None:
        """Let go of a segment's files."""
        segment.files = None
        self._sealed_open.pop(segment.base_offset, None)

    def forget_all(self) -> None:
        """Let go of all files and cursors."""
        for segment in self.segments:
            segment.files = None
        self._sealed_open = {}
        self._cursors = {}

    def _open(self, segment: Segment) -> SegmentFiles:
        try:
            log = self._files.open(segment.log_path)
        except FileNotFoundError as error:
            if segment.end_offset is None:
                raise  # retention removes sealed segments only: somebody else removed this file
            raise expired(segment.base_offset, self.start_offset) from error
        sidecar = open_if_there(self._files, segment.sidecar_path)
        segment.worn = segment.worn or sidecar is None
        if (index := segment.index) is not None:
            return SegmentFiles(log, sidecar, index)
        found = read_index(self._files, segment, self.epochs, interval_bytes=self._interval_bytes)
        if found is None:
            index = self._rebuild_index(segment, log, sidecar)
        else:
            index, facts = found
            segment.first_timestamp_ms, segment.last_timestamp_ms = facts[-2:]
        return SegmentFiles(log, sidecar, index)

    def _rebuild_index(self, segment: Segment, log: File, sidecar: File | None) -> SegmentIndex:
        segment.worn = True
        index = self.new_index(segment.base_offset)
        files = SegmentFiles(log, sidecar, index)
        first, last = walk_through(segment, files, self.epochs)
        segment.first_timestamp_ms, segment.last_timestamp_ms = first, last
        return index

    # --- places ------------------------------------------------------------------------------------------------

    def locate(self, offset: int) -> BatchPlace:
        """The batch that holds ``offset``, which must be written."""
        cursor = self._cursors.get(offset)
        if cursor is not None and cursor[0].end_offset == offset:
            cursor = None  # it was sealed there since: the batch is in the next segment
        segment = self.segment_of(offset) if cursor is None else cursor[0]
        files = self.files_of(segment)
        anchor = files.index.before(offset) if cursor is None else cursor[1]
        try:
            return self._walk_to(offset, segment, files, anchor)
        except ChecksumMismatch:
            if anchor == files.index.start:
                raise
            # The anchor may be what is wrong. The start of a segment never is.
            return self._walk_to(offset, segment, files, files.index.start)

    def _walk_to(self, offset: int, segment: Segment, files: SegmentFiles, anchor: Anchor) -> BatchPlace:
        walk = self.walk(segment, files, anchor)
        entry = walk.next()
        while entry.next_offset <= offset:
            entry = walk.next()
        return BatchPlace(segment, files, walk, entry)

    def walk(self, segment: Segment, files: SegmentFiles, anchor: Anchor) -> Walk:
        """A walk along a segment."""
        return Walk(files, anchor, log_size=segment.log_size, epochs=self.epochs)

    def remember(self, segment: Segment, anchor: Anchor) -> None:
        """A read ended here, so one may begin here."""
        cursors = self._cursors
        cursors[anchor.offset] = (segment, anchor)
        if len(cursors) > CURSORS_MAX:
            try:
                cursors.pop(next(iter(cursors)), None)
            except (RuntimeError, StopIteration):
                pass  # another thread was faster


def walk_through(segment: Segment, files: SegmentFiles, epochs: Epochs) -> tuple[int, int]:
    """Walk a whole segment and add its anchors to ``files.index``; ends early at what cannot be read.

    Returns the timestamps of its first and last batch.
    """
    walk = Walk(files, files.index.start, log_size=segment.log_size, epochs=epochs)
    first = last = -1
    while walk.position < segment.log_size:
        sidecar_position = walk.sidecar_position
        try:
            entry = walk.next()
        except ChecksumMismatch:
            break
        files.index.add(
            entry.base_offset,
            timestamp_ms=entry.timestamp_ms,
            position=entry.position,
            sidecar_position=sidecar_position,
        )
        first, last = (entry.timestamp_ms if first < 0 else first), entry.timestamp_ms
    return first, last


def read_index(
    files: Files, segment: Segment, epochs: Epochs, *, interval_bytes: int
) -> tuple[SegmentIndex, SegmentSpan] | None:
    """A segment's index file, or None when it is missing, damaged, or does not cover the whole segment."""
    try:
        content = files.read_whole(segment.index_path)
    except FileNotFoundError:
        return None
    found = decode_index(content, base_offset=segment.base_offset, interval_bytes=interval_bytes)
    if found is None or found[1].log_size != segment.log_size or not found[1].is_about(epochs):
        return None
    return found


def open_if_there(files: Files, path: str) -> File | None:
    """An existing file, or None."""
    try:
        return files.open(path)
    except FileNotFoundError:
        return None


def out_of_range(chain: Chain, offset: int) -> OffsetOutOfRange:
    """The error for an offset that the log does not hold."""
    if offset < chain.start_offset:
        return expired(offset, chain.start_offset)
    return OffsetOutOfRange(
        f"offset {offset} is not written yet: the log ends at {chain.end_offset}",
        offset=offset,
        end_offset=chain.end_offset,
    )


def expired(offset: int, start_offset: int) -> OffsetOutOfRange:
    """The error for an offset before the log's start."""
    return OffsetOutOfRange(
        f"offset {offset} is before the start of the log at {start_offset}: it has expired",
        offset=offset,
        start_offset=start_offset,
    )
