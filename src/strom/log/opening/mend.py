"""Rebuilding sidecars and indexes: whatever is derived can be derived again.

A new sidecar is written beside the old one and takes its place by a rename, so readers and crashes see one or the
other. An index is simply overwritten: it has a checksum, and a torn one counts as missing.
"""

from __future__ import annotations

from dataclasses import replace

from strom.errors import ChecksumMismatch, StorageFull
from strom.log import layout as at
from strom.log.chain import Chain
from strom.log.epochs import Epochs
from strom.log.index import Anchor, SegmentIndex, decode_index
from strom.log.segment import Segment, SegmentFiles
from strom.log.sidecar import encode_header
from strom.log.walk import Walk
from strom.runtime.files import TEMPORARY_SUFFIX, Bytes, File, Files

WRITE_BYTES = 1024 * 1024


class SidecarGrowth:
    """Appends entries to a sidecar, many at a time."""

    def __init__(self, sidecar: File, size: int) -> None:
        sidecar.truncate(size)  # a torn entry may be there
        self._sidecar = sidecar
        self._waiting: list[Bytes] = []
        self._waiting_bytes = 0

    def add(self, part: Bytes) -> None:
        """The next entry."""
        self._waiting.append(part)
        self._waiting_bytes += len(part)
        if self._waiting_bytes >= WRITE_BYTES:
            self.finish()

    def finish(self) -> None:
        """Write what is waiting."""
        self._sidecar.append([b"".join(self._waiting)])
        self._waiting, self._waiting_bytes = [], 0


class SidecarRewrite:
    """Rewrites a sidecar: the old one's beginning, then entries one by one."""

    def __init__(
        self, files: Files, segment: Segment, *, old: File | None = None, keep_until: int = 0
    ) -> None:
        self._files = files
        self._path = segment.sidecar_path
        self._file = files.open(self._path + TEMPORARY_SUFFIX, create=True)
        self._growth = SidecarGrowth(self._file, 0)
        self.add(encode_header(segment.base_offset))
        position = at.SIDECAR_HEADER_SIZE
        while old is not None and position < keep_until:
            part = old.read_at(position, min(WRITE_BYTES, keep_until - position))
            assert part, "what is kept was read before"
            self.add(part)
            position += len(part)

    def add(self, part: Bytes) -> None:
        """The next entry."""
        self._growth.add(part)

    def give_up(self) -> None:
        """Leave the old one as it is."""
        self._file.close()
        self._files.remove(self._path + TEMPORARY_SUFFIX)

    def finish(self) -> None:
        """Put it in the old one's place."""
        self._growth.finish()
        self._file.sync()
        self._file.close()
        self._files.rename(self._path + TEMPORARY_SUFFIX, self._path)


def rebuild_sidecar(
    files: Files, segment: Segment, opened: SegmentFiles, epochs: Epochs, *, until: int | None = None
) -> bool:
    """Rewrite a segment's sidecar up to the log position ``until``; False when a damaged batch prevents it."""
    end = segment.log_size if until is None else until
    walk = Walk(opened, opened.index.start, log_size=segment.log_size, epochs=epochs)
    rewrite = SidecarRewrite(files, segment)
    try:
        while walk.position < end:
            walk.next()
            rewrite.add(walk.entry_bytes())
        rewrite.finish()
    except (ChecksumMismatch, StorageFull) as error:
        rewrite.give_up()
        if isinstance(error, StorageFull):
            raise
        return False
    return True


def write_index(
    files: Files, segment: Segment, index: SegmentIndex, epochs: Epochs, *, end_offset: int
) -> None:
    """Write a segment's index file. Not synced, and given up on a full disk: it can be rebuilt."""
    file = files.open(segment.index_path, create=True)
    file.truncate(0)
    try:
        file.append([index.encode(segment.facts(end_offset, epochs))])
    except StorageFull:
        pass
    file.close()


def load_index(
    files: Files,
    segment: Segment,
    opened: SegmentFiles,
    epochs: Epochs,
    *,
    until: Anchor,
    interval_bytes: int,
) -> SegmentIndex:
    """The index of a segment's batches before ``until``, from its file as far as that goes, the rest by a walk."""
    found = None
    if files.exists(segment.index_path):
        content = files.read_whole(segment.index_path)
        found = decode_index(content, base_offset=segment.base_offset, interval_bytes=interval_bytes)
    if found is not None and found[1].end_offset <= until.offset and found[1].is_about(epochs):
        index, facts = found
        segment.first_timestamp_ms = facts.first_timestamp_ms
        if _extended(segment, opened, index, epochs, until):
            return index
    index = SegmentIndex(segment.base_offset, interval_bytes=interval_bytes)
    segment.first_timestamp_ms = at.NO_TIMESTAMP
    _extended(segment, opened, index, epochs, until)
    return index


def _extended(
    segment: Segment, opened: SegmentFiles, index: SegmentIndex, epochs: Epochs, until: Anchor
) -> bool:
    """Add the anchors between the index's last and ``until``; False when the walk failed."""
    walk = Walk(opened, index.before(until.offset), log_size=segment.log_size, epochs=epochs)
    try:
        while walk.offset < until.offset:
            sidecar_position = walk.sidecar_position
            entry = walk.next()
            index.add(
                entry.base_offset,
                timestamp_ms=entry.timestamp_ms,
                position=entry.position,
                sidecar_position=sidecar_position,
            )
            if segment.first_timestamp_ms < 0:
                segment.first_timestamp_ms = entry.timestamp_ms
    except ChecksumMismatch:
        return False
    return walk.anchor() == until


def remove_segment(files: Files, segment: Segment) -> None:
    """Remove a segment's files, the batches first: what is left without them is removed at the next opening."""
    for path in (segment.log_path, segment.sidecar_path, segment.index_path):
        files.remove(path)


def cut_behind(files: Files, chain: Chain, segment: Segment, opened: SegmentFiles, end: Anchor) -> None:
    """Remove the segments behind ``segment`` and cut it at ``end``; it becomes the active one, durably."""
    if opened.sidecar is None or opened.sidecar.size() < end.sidecar_position:
        rebuild_sidecar(files, segment, opened, chain.epochs, until=end.position)
        opened = replace(opened, sidecar=files.open(segment.sidecar_path))
    assert opened.sidecar is not None
    number = chain.segments.index(segment)
    removed = chain.segments[number + 1 :]
    chain.forget_all()
    chain.segments = chain.segments[: number + 1]
    for behind in reversed(removed):
        remove_segment(files, behind)
    files.sync_folder(segment.folder)
    segment.end_offset = None
    opened.index.cut(end.position)
    segment.index = opened.index
    segment.files = opened
    segment.log_size, segment.sidecar_size = end.position, end.sidecar_position
    if segment.empty:
        segment.first_timestamp_ms = segment.last_timestamp_ms = at.NO_TIMESTAMP
    for file, size in ((opened.log, end.position), (opened.sidecar, end.sidecar_position)):
        file.truncate(size)
        file.sync()
