"""A stretch of a bucket's log on its way into the store: batches, put together as a segment.

It ends between two groups where it can, so that a log that is opened from the store has whole ones. Reading it checks
every batch; where offsets were given up as damaged, it has what readers get there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from strom.errors import SchemaNotFound
from strom.log.log import Log
from strom.record.batch import BatchHeader, split
from strom.record.columns import ColumnLayout
from strom.remote.chain_leader import LogState, SegmentContent
from strom.remote.column_extents import LogBatch, transpose
from strom.remote.remote_manifest import RemoteEpoch, RemoteManifest, RemoteWriter

SLICE_BYTES = 16 * 1024 * 1024

LayoutOf = Callable[[int], ColumnLayout | None]


class LogStretch(NamedTuple):
    """Some batches as a segment, and what a manifest that names it says in addition."""

    content: SegmentContent
    state: LogState


def take_stretch(
    log: Log,
    known: RemoteManifest,
    until: int,
    size: int,
    layout_of: LayoutOf,
    *,
    lake_offset: int,
    writers_from_ms: int,
) -> LogStretch | None:
    """What follows the end of the remote log, about ``size`` bytes below ``until``; None when nothing does.

    Writers whose last batch is older than ``writers_from_ms`` are forgotten, as the log forgets them.
    """
    start = known.end_offset
    batches = _whole_groups(log, start, _read(log, start, until, size))
    if not batches:
        return None
    epochs = log.epochs
    layouts: dict[int, ColumnLayout] = {}
    for header, _ in batches:
        if header.schema_id not in layouts:
            layouts[header.schema_id] = _layout(layout_of, header.schema_id)
    content = transpose(
        [LogBatch(view, epochs.epoch_of(header.base_offset)) for header, view in batches], layouts
    )
    state = LogState(
        _epochs(known.epochs, log, start, content.end_offset),
        _writers(known.writers, [header for header, _ in batches], writers_from_ms),
        log.groups.applied(content.end_offset),
        lake_offset,
    )
    return LogStretch(content, state)


def _read(log: Log, start: int, until: int, size: int) -> list[tuple[BatchHeader, memoryview]]:
    found: list[tuple[BatchHeader, memoryview]] = []
    offset, left = start, size
    while offset < until and left > 0:
        part = log.read(offset, until=until, max_bytes=min(left, SLICE_BYTES))
        if part.next_offset <= offset:
            break
        octets = part.buffers[0] if len(part.buffers) == 1 else b"".join(part.buffers)
        found += split(octets)
        offset, left = part.next_offset, left - part.size
    return found


def _whole_groups(
    log: Log, start: int, batches: list[tuple[BatchHeader, memoryview]]
) -> list[tuple[BatchHeader, memoryview]]:
    """Without the part of a group at the end, unless there is nothing else: a group may be larger than an object."""
    if not batches:
        return batches
    edge = log.groups.boundary(batches[-1][0].next_offset)
    return [one for one in batches if one[0].next_offset <= edge] if edge > start else batches


def _layout(layout_of: LayoutOf, schema_id: int) -> ColumnLayout:
    layout = layout_of(schema_id)
    if layout is None:
        raise SchemaNotFound(f"the log has a batch of schema {schema_id}, which its table does not have")
    return layout


def _epochs(known: Sequence[RemoteEpoch], log: Log, start: int, end: int) -> tuple[RemoteEpoch, ...]:
    """Those that gave the rows up to ``end``: the log forgets epochs whose rows are gone, the manifest does not."""
    newest = known[-1].epoch if known else -1
    more = [one for one in log.epochs.starts if one.start_offset < end and one.epoch > newest]
    while len(more) > 1 and more[1].start_offset <= start:
        del more[0]  # it gave no row that goes up
    return (*known, *(RemoteEpoch(epoch, max(first, start)) for epoch, first in more))


def _writers(
    known: Sequence[RemoteWriter], headers: Sequence[BatchHeader], from_ms: int
) -> tuple[RemoteWriter, ...]:
    """What each writer had written by the end of these batches."""
    found = {one.writer_id: one for one in known if one.last_timestamp_ms >= from_ms}
    for header in headers:
        if header.writer_id >= 0:
            found[header.writer_id] = RemoteWriter(
                header.writer_id,
                header.batch_sequence,
                header.base_offset,
                header.next_offset,
                header.timestamp_ms,
            )
    return tuple(found[writer_id] for writer_id in sorted(found))
