"""Which batches of a remote segment make up the next slice of a read; decided from its directory alone.

The rules are those of a read of the local log (``log/reading/slices.py``): whole batches from the one that holds the
offset, as many as fit, the first one larger if it may be; batches are skipped by their statistics before a byte of
them is fetched.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from strom.log.reading.slices import SKIPPED_BATCHES_MAX, SKIPPED_BYTES_MAX, ProjectionOf, Skip
from strom.record.project import ProjectedBatch, Projection
from strom.remote.segment_directory import Extent, RemoteBatch, SegmentDirectory


class ReadWish(NamedTuple):
    """What a read wants of a log."""

    max_bytes: int
    most: int
    """The first batch may be as large as this."""
    until: int | None = None
    projection: ProjectionOf | None = None
    skip: Skip | None = None
    gaps: bool = True
    """Whether offsets that were given up come as a batch without records."""


class PickedBatch(NamedTuple):
    """A batch of the slice."""

    number: int
    projection: Projection | None
    """None: all of it."""
    cut: ProjectedBatch | None
    size: int

    def columns_of(self, extent: Extent) -> tuple[int, ...]:
        """The columns that have to be fetched."""
        return tuple(range(len(extent.columns))) if self.projection is None else self.projection.columns


@dataclass
class SlicePlan:
    """The batches of the slice, and where it ends."""

    next_offset: int
    picks: list[PickedBatch] = field(default_factory=list)
    size: int = 0
    rows: int = 0
    batches_skipped: int = 0
    bytes_skipped: int = 0
    rows_skipped: int = 0
    lacking: int = 0
    """If nothing was picked because the next batch alone is larger than allowed: its size."""
    full: bool = False
    """Whether it ended for want of room: there is more."""


def plan_slice(directory: SegmentDirectory, offset: int, until: int, room: int, wish: ReadWish) -> SlicePlan:
    """The slice from ``offset`` on, of at most ``room`` bytes; it ends with the segment at the latest."""
    plan = SlicePlan(offset)
    first = bisect_right(directory.batches, offset, key=lambda batch: batch.entry.base_offset) - 1
    for number in range(max(first, 0), len(directory.batches)):
        batch = directory.batches[number]
        if batch.entry.base_offset >= until or not _consider(plan, number, batch, room, wish):
            break
    return plan


def _consider(plan: SlicePlan, number: int, batch: RemoteBatch, room: int, wish: ReadWish) -> bool:
    """Pick or skip one batch; False when the slice is complete."""
    entry = batch.entry
    if entry.record_count and wish.skip is not None and wish.skip(batch.header, memoryview(batch.head)):
        plan.batches_skipped += 1
        plan.bytes_skipped += entry.batch_size
        plan.rows_skipped += entry.record_count
        plan.next_offset = entry.next_offset
        return plan.bytes_skipped < SKIPPED_BYTES_MAX and plan.batches_skipped < SKIPPED_BATCHES_MAX
    if batch.header.damaged and not wish.gaps:
        plan.next_offset = entry.next_offset
        return True
    projection = (
        None if wish.projection is None or not entry.record_count else wish.projection(entry.schema_id)
    )
    cut = None if projection is None else projection.cut(batch.head, batch.header)
    size = entry.batch_size if cut is None else cut.size
    if plan.size + size > room:
        alone = not plan.picks and room >= wish.max_bytes
        if not alone or size > wish.most:
            plan.lacking = size if alone else 0
            plan.full = True
            return False
    plan.picks.append(PickedBatch(number, projection, cut, size))
    plan.size += size
    plan.rows += entry.record_count
    plan.next_offset = entry.next_offset
    return True


def by_extent(directory: SegmentDirectory, picks: list[PickedBatch]) -> list[tuple[int, list[PickedBatch]]]:
    """The picks of each extent, in order."""
    firsts = [extent.first_batch for extent in directory.extents]
    groups: list[tuple[int, list[PickedBatch]]] = []
    for pick in picks:
        extent = bisect_right(firsts, pick.number) - 1
        if not groups or groups[-1][0] != extent:
            groups.append((extent, []))
        groups[-1][1].append(pick)
    return groups


def offset_at_time(directory: SegmentDirectory, timestamp_ms: int) -> int | None:
    """The offset of the first batch at or after a time; None when the segment ends before."""
    return next(
        (one.entry.base_offset for one in directory.batches if one.entry.timestamp_ms >= timestamp_ms), None
    )
