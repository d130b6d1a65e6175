"""Writing the active segment: its files come into being, grow together, or stay as they were."""

from __future__ import annotations

from strom.log.index import SegmentIndex
from strom.log.segment import Segment, SegmentFiles
from strom.log.sidecar import encode_header
from strom.runtime.files import Bytes, Files


def create_segment(files: Files, segment: Segment, *, interval_bytes: int) -> None:
    """Make a segment's files. Whatever has their names is left from a crash."""
    log = files.open(segment.log_path, create=True)
    sidecar = files.open(segment.sidecar_path, create=True)
    log.truncate(0)
    sidecar.truncate(0)
    sidecar.append([encode_header(segment.base_offset)])
    segment.index = SegmentIndex(segment.base_offset, interval_bytes=interval_bytes)
    segment.files = SegmentFiles(log, sidecar, segment.index)
    segment.created = True


def write_batch(segment: Segment, opened: SegmentFiles, view: Bytes, entry: Bytes) -> None:
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
        raise


def publish_batch(
    segment: Segment, *, base_offset: int, timestamp_ms: int, batch_size: int, entry_size: int
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
