"""A scan of a primary-key bucket: a pure function of offsets, answered slice by slice.

A scan names the instant B it reads (``at``) and the offset A it begins from (``start``). It returns the images in
[A, B) that are live at B, in the order of their offsets, and, if requested, the *dead* offsets: those of images below A
that died in [A, B). Now, after a retry, a restart or a change of leader, the answer is the same, or an error:

    Expired         B lies below the horizon, or A below the start of the series: plan again
    NotYetVisible   B lies above the high watermark
    StaleEpoch      the log has another record before B, or before A, than the caller knew
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import Expired, NotYetVisible
from strom.kv.instant import LiveBlock, dead_between, live_blocks
from strom.kv.rows.live_rows import gather_live
from strom.kv.store import KeyStore
from strom.model.filters.predicate import Predicate

NOW = -1
ROWS_AT_ONCE, ROWS_AT_ONCE_MAX = 1 << 16, 1 << 18
"""Rows read together; more where they are known to be small."""
BYTES_AT_ONCE_MIN = 1024 * 1024
"""At least this many bytes, or one row, are read together, however little of the requested size is left."""
SLICE_BYTES_MAX = 8 * 1024 * 1024
DEAD_RECORDS_MAX = 1 << 20
"""Records searched for dead offsets in one slice: at most 8 MB of offsets."""


@dataclass(frozen=True)
class ScanRequest:
    """One slice of a scan. The first has no cursor; the next ones repeat B (``ScanSlice.at``) and pass the cursor."""

    at: int = NOW
    """B, or NOW for the high watermark."""
    at_epoch: int | None = None
    """The epoch of B - 1 as the caller knows it; None when it does not care."""
    start: int = 0
    """A: images from here on."""
    start_epoch: int | None = None
    """The epoch of A - 1 as the caller knows it; None when it does not care."""
    cursor: int | None = None
    columns: tuple[int, ...] | None = None
    """Positions in the newest schema; None for all. Must not be empty."""
    predicate: Predicate | None = None
    limit: int | None = None
    """Upper bound of the rows of this slice."""
    max_bytes: int = SLICE_BYTES_MAX
    """Bytes of rows to return, roughly; at least one block is read, except for 0: then no rows are."""
    dead: bool = False
    """Whether to return dead offsets (from the first slice on, for a bounded number of records at a time)."""
    dead_from: int | None = None
    """Where to begin the search for dead offsets; None: at A. The previous slice says where to go on."""
    offsets: bool = True
    """Whether the offset of each row is wanted."""


class OffsetBatch(NamedTuple):
    """Rows and the offset of each, rising (None if not requested)."""

    offsets: npt.NDArray[np.int64] | None
    rows: pa.RecordBatch


class ScanSlice(NamedTuple):
    """What one slice found."""

    at: int
    at_epoch: int
    batches: list[OffsetBatch]
    next_cursor: int | None
    """Where the next slice begins; None when the scan is done."""
    dead: npt.NDArray[np.int64] | None
    horizon: int
    series_start: int
    dead_next: int | None = None
    """Where to continue the search for dead offsets; None when it is complete."""

    @property
    def done(self) -> bool:
        """Whether there is no more."""
        return self.next_cursor is None


def check_instant(at: int, start: int, *, high: int, horizon: int, series_start: int) -> None:
    """Refuse an instant that is not visible yet, or no longer kept."""
    if at > high:
        raise NotYetVisible(f"offset {at} is not visible yet, the high watermark is {high}", offset=at)
    if at < horizon:
        raise Expired(
            f"the table is not kept as it was at offset {at} any more, only from {horizon} on: plan again",
            at=at,
            horizon=horizon,
        )
    if 0 < start < series_start:
        raise Expired(
            f"the rows that died since offset {start} are no longer known, only since {series_start}: plan again",
            start=start,
            series_start=series_start,
        )


def scan_slice(
    store: KeyStore, request: ScanRequest, *, at: int, at_epoch: int, high: int, horizon: int
) -> ScanSlice:
    """One slice at an instant that was checked and leased."""
    cursor = request.start if request.cursor is None else max(request.cursor, request.start)
    found, reached = _collect(store, request, cursor, at, high)
    dead, dead_next = None, None
    if request.dead and request.cursor is None:
        first = max(request.start, request.dead_from or 0)
        end = min(first + DEAD_RECORDS_MAX, at)
        dead = dead_between(store, request.start, first, end)
        dead_next = end if end < at and request.start > 0 else None
    cursor_next = reached if reached < at else None
    return ScanSlice(at, at_epoch, found, cursor_next, dead, horizon, store.series.start, dead_next)


def _collect(
    store: KeyStore, request: ScanRequest, cursor: int, at: int, high: int
) -> tuple[list[OffsetBatch], int]:
    """Batches until there are enough bytes or rows, and where to go on."""
    wanted, asked = _columns(store, request)
    width = store.rows.directory.layout.selection(asked).width
    found: list[OffsetBatch] = []
    size = rows = 0
    while cursor < at and size < request.max_bytes and (request.limit is None or rows < request.limit):
        left = max(request.max_bytes - size, BYTES_AT_ONCE_MIN)
        rows_max = _rows_at_once(width, left)
        blocks, reached = live_blocks(store, cursor, at, asked, high=high, rows_max=rows_max, bytes_max=left)
        if request.predicate is None and request.limit is None:
            batches = _copied(blocks, request, wanted)
            found += batches
            size += sum([batch.rows.nbytes for batch in batches])
            cursor = reached
            continue
        for block in blocks:
            most = None if request.limit is None else request.limit - rows
            batch, last = _passing(block, request, wanted, most)
            if batch.rows.num_rows:
                found.append(batch)
                rows += batch.rows.num_rows
                size += batch.rows.nbytes
            if request.limit is not None and rows >= request.limit:
                return found, cursor if last is None else last + 1
        cursor = reached
    return found, cursor


def _rows_at_once(width: int | None, bytes_left: int) -> int:
    if not width:
        return ROWS_AT_ONCE
    return min(max(bytes_left // width, ROWS_AT_ONCE), ROWS_AT_ONCE_MAX)


def _copied(blocks: Sequence[LiveBlock], request: ScanRequest, wanted: list[int]) -> list[OffsetBatch]:
    """All live rows of some blocks, together in one batch where some are dead."""
    some = [one for one in blocks if one.live.any()]
    if not some:
        return []
    if some[0].block.selection.nested or all(one.live.all() for one in some):
        # The kernels do not handle nested columns, and if all rows are live no copy is needed.
        return [_passing(one, request, wanted, None)[0] for one in some]
    rows = gather_live([(one.block, one.live) for one in some])
    offsets = np.concatenate([one.offsets[one.live] for one in some]) if request.offsets else None
    return [OffsetBatch(offsets, rows)]


def _columns(store: KeyStore, request: ScanRequest) -> tuple[list[int], tuple[int, ...]]:
    """The positions of the wanted columns among those that are read; and the latter: wanted, then the predicate's."""
    schema = store.definition.schema
    wanted = tuple(range(len(schema.columns))) if request.columns is None else request.columns
    needed = () if request.predicate is None else schema.projected(sorted(request.predicate.columns()))
    asked = (*wanted, *(position for position in needed if position not in wanted))
    return list(range(len(wanted))), asked


def _passing(
    block: LiveBlock, request: ScanRequest, wanted: list[int], limit: int | None
) -> tuple[OffsetBatch, int | None]:
    """The live rows of a block that pass, with the wanted columns; with a limit, also the last one's offset."""
    chosen, batch = block.live, block.batch
    if request.predicate is not None and chosen.any():
        passed = request.predicate.mask(batch).fill_null(False).to_numpy(zero_copy_only=False)
        chosen = chosen & passed
    rows = batch.select(wanted)
    if limit is None and chosen.all():
        return OffsetBatch(block.offsets if request.offsets else None, rows), None
    places = np.flatnonzero(chosen)[:limit]
    rows = rows.take(pa.array(places))
    if limit is None and not request.offsets:
        return OffsetBatch(None, rows), None
    offsets = block.offsets[places]
    last = int(offsets[-1]) if len(offsets) else None
    return OffsetBatch(offsets if request.offsets else None, rows), last
