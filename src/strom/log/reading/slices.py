"""Reading: whole batches from an offset on, as they are or with some of their columns.

Adjacent batches are read with one call, up to ``RUN_BYTES``. If only some columns of a large batch are wanted, it is
read in parts: its head, then the wanted buffers. Nothing leaves unchecked: a whole batch is checked against its own CRC
and its entry, a part against the checksums in its entry.

A damaged batch ends a slice before it; the read that begins with it raises ChecksumMismatch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from strom.errors import ChecksumMismatch
from strom.log.chain import BatchPlace, Chain
from strom.log.index import Anchor
from strom.log.reading.alike_run import read_run
from strom.log.reading.answer_memory import AnswerMemory, read_cut
from strom.log.reading.run_pace import RunPace
from strom.log.sidecar import SidecarEntry, check_batch, check_head
from strom.record.batch import BatchHeader, read_header
from strom.record.project import Projection, project_batch
from strom.runtime.files import Bytes, File

ProjectionOf = Callable[[int], Projection | None]
"""The projection for a schema id; None for the batch as it is."""
Skip = Callable[[BatchHeader, memoryview], bool]
"""Whether a batch may be left out, seeing its header and its head (with the statistics)."""

BATCH_BYTES_ANY = 1 << 62
"""No limit on the size of the first batch of a read."""
RUN_BYTES = 1024 * 1024
#: Fewer batches are read faster one by one than together.
RUN_BATCHES_MIN = 4
#: A read that only skips ends here, so that one call is never a scan of the whole log.
SKIPPED_BYTES_MAX = 64 * 1024 * 1024
SKIPPED_BATCHES_MAX = 4096


class LogSlice(NamedTuple):
    """Batches in order, as buffers to be sent one after the other; a buffer may hold many batches or a part of one."""

    buffers: list[Bytes]
    next_offset: int
    """Where to continue. Past the last batch, also past those that were skipped."""
    batches: int = 0
    rows: int = 0
    size: int = 0
    bytes_skipped: int = 0
    rows_skipped: int = 0
    lacking: int = 0
    """If nothing was read because the next batch alone is larger than allowed: its size."""


def joined(first: LogSlice, second: LogSlice) -> LogSlice:
    """Two slices as one; the second begins where the first ends."""
    return LogSlice(
        [*first.buffers, *second.buffers],
        second.next_offset,
        first.batches + second.batches,
        first.rows + second.rows,
        first.size + second.size,
        first.bytes_skipped + second.bytes_skipped,
        first.rows_skipped + second.rows_skipped,
    )


class SliceReader:
    """One read of a log."""

    def __init__(
        self,
        chain: Chain,
        *,
        until: int,
        max_bytes: int,
        projection: ProjectionOf | None = None,
        skip: Skip | None = None,
        most: int | None = None,
    ) -> None:
        self._chain = chain
        self._until = until
        self._max_bytes = max_bytes
        self._projection = projection
        self._projections: dict[int, Projection | None] = {}
        self._skip = skip
        self._most = max_bytes if most is None else most
        self._lacking = 0
        self._buffers: list[Bytes] = []
        self._memory = AnswerMemory(self._buffers, max_bytes)
        self._next_offset = 0
        self._batches = self._rows = self._size = 0
        self._batches_skipped = self._rows_skipped = self._bytes_skipped = 0
        self._run: list[SidecarEntry] = []
        self._run_bytes = 0
        self._run_log: File | None = None
        self._pace = RunPace()

    def read(self, offset: int) -> LogSlice:
        """Batches from the one that holds ``offset`` on."""
        place = self._chain.locate(offset)
        begin = self._next_offset = place.entry.base_offset
        try:
            place = self._collect(place)
        except ChecksumMismatch:
            if self._next_offset == begin:
                raise
        self._memory.emit()
        self._remember(place)
        return LogSlice(
            self._buffers,
            max(self._next_offset, offset),
            self._batches,
            self._rows,
            self._size,
            self._bytes_skipped,
            self._rows_skipped,
            self._lacking if self._next_offset <= offset else 0,
        )

    def _remember(self, place: BatchPlace) -> None:
        """Note where this read ended, and whether the sidecar needs to be rebuilt."""
        segment, _, walk, entry = place
        if walk.made_again:
            segment.worn = True
        if walk.offset == self._next_offset:
            self._chain.remember(segment, walk.anchor())
        elif entry.base_offset == self._next_offset:
            before = Anchor(entry.base_offset, entry.position, walk.sidecar_position - entry.entry_size)
            self._chain.remember(segment, before)

    def _projection_of(self, entry: SidecarEntry) -> Projection | None:
        if self._projection is None or not entry.record_count:
            return None  # a batch without records has no columns to choose from
        schema_id = entry.schema_id
        if schema_id not in self._projections:
            self._projections[schema_id] = self._projection(schema_id)
        return self._projections[schema_id]

    def _collect(self, place: BatchPlace) -> BatchPlace:
        """Take batches until there are enough; returns where it stopped."""
        while self._consider(place) and place.walk.offset < self._until:
            try:
                place = self._advance(place)
            except ChecksumMismatch:
                self._flush()
                raise
        self._flush()
        return place

    def _advance(self, place: BatchPlace) -> BatchPlace:
        segment, files, walk, _ = place
        if walk.offset == segment.end_offset:
            segment = self._chain.after(segment)
            files = self._chain.files_of(segment)
            walk = self._chain.walk(segment, files, files.index.start)
        return BatchPlace(segment, files, walk, walk.next())

    def _consider(self, place: BatchPlace) -> bool:
        """Plan, take or skip one batch; False when the slice is complete."""
        entry, log = place.entry, place.files.log
        projected = self._projection_of(entry) is not None
        if entry.buffer_count and (projected or self._skip is not None):
            return self._flush() and self._take_parts(place)
        if log is not self._run_log and not self._flush():
            return False
        if not projected and not self._fits(self._run_bytes + entry.batch_size, first=not self._run):
            return False
        self._run.append(entry)
        self._run_bytes += entry.batch_size
        self._run_log = log
        return self._run_bytes < RUN_BYTES or self._flush()

    def _fits(self, size: int, *, first: bool = True) -> bool:
        """Whether ``size`` bytes still fit; the first batch may be as large as one alone is allowed to be."""
        if self._size + size <= self._max_bytes:
            return True
        if not first or self._batches:
            return False
        self._lacking = size
        return size <= self._most

    # --- whole batches -------------------------------------------------------------------------------------------

    def _flush(self) -> bool:
        """Read the planned run and take its batches; False when the slice is complete."""
        run, size, log = self._run, self._run_bytes, self._run_log
        if not run or log is None:
            return True
        self._run, self._run_bytes, self._run_log = [], 0, None
        octets = memoryview(log.read_at(run[0].position, size))
        plain_from = start = 0
        going = True
        try:
            for entry in run:
                view = octets[start : start + entry.batch_size]
                check_batch(view, entry)
                pieces = self._taken_from_memory(view, entry)
                if pieces is not None:
                    self._emit(octets[plain_from:start])
                    plain_from = start + entry.batch_size
                    going = self._take_copied(entry, pieces)
                start += entry.batch_size
                if not going:
                    break
        finally:
            self._emit(octets[plain_from:start])
        return going

    def _taken_from_memory(self, view: memoryview, entry: SidecarEntry) -> list[Bytes] | None:
        """What to send of a batch: None for all of it (counted here), nothing when skipped, else its pieces."""
        if self._skip is not None and self._skip(read_header(view), view[: entry.head_size]):
            self._count_skipped(entry)
            return []
        projection = self._projection_of(entry)
        if projection is not None:
            return project_batch(view, projection)
        self._count(entry, entry.batch_size)
        return None

    def _emit(self, piece: memoryview) -> None:
        if len(piece):
            self._memory.emit()
            self._buffers.append(piece)

    # --- parts of large batches ----------------------------------------------------------------------------------

    def _take_parts(self, place: BatchPlace) -> bool:
        if self._skip is None and (taken := self._take_alike(place)) is not None:
            return taken
        files, walk, entry = place.files, place.walk, place.entry
        head = memoryview(files.log.read_at(entry.position, entry.head_size))
        check_head(head, entry)
        header = read_header(head)
        if self._skip is not None and self._skip(header, head):
            self._count_skipped(entry)
            return self._may_go_on()
        projection = self._projection_of(entry)
        if projection is None:
            if not self._fits(entry.batch_size):
                return False
            view = memoryview(files.log.read_at(entry.position, entry.batch_size))
            check_batch(view, entry)
            return self._take(entry, [view])
        cut = projection.cut(head, header)
        if not self._fits(cut.size):
            return False  # before its bytes are read: the next slice would read them again
        room = self._memory.room(cut.size)
        read_cut(files.log, entry, cut, walk.buffer_crcs(entry), room)
        self._memory.keep(cut.size)
        self._count(entry, cut.size)
        return self._size < self._max_bytes

    def _take_alike(self, place: BatchPlace) -> bool | None:
        """Take a batch that is cut like the one before it, and those after it that are too; None when it is not."""
        first, walk = place.entry, place.walk
        projection = self._projection_of(first)
        alike = None if projection is None else projection.alike(first.head_size, first.batch_size)
        if alike is None:
            return None
        if not self._fits(alike.size):
            return False
        end = self._until if place.segment.end_offset is None else min(self._until, place.segment.end_offset)
        rows = first.last_offset_delta + 1
        fitting = min(
            (self._max_bytes - self._size) // alike.size, (end - 1 - first.base_offset) // max(rows, 1) + 1
        )
        wanted = self._pace.batches(fitting)
        if wanted < RUN_BATCHES_MIN:
            return None
        run = walk.run_from(first, wanted)
        count = 0
        if run.batches >= RUN_BATCHES_MIN:
            count = read_run(place.files.log, alike, run, self._memory)
        self._pace.had(wanted, count)
        if not count:
            return None  # whatever it is, it is read the general way
        walk.pass_over(run, count)
        self._batches += count
        self._rows += count * first.record_count
        self._size += count * alike.size
        self._next_offset = walk.offset
        return self._size < self._max_bytes

    def _take_copied(self, entry: SidecarEntry, pieces: list[Bytes]) -> bool:
        """Add one batch as a copy: its pieces lie amid what was read, and a few columns would keep all of it alive."""
        if not pieces:
            return self._may_go_on()
        size = sum(map(len, pieces))
        if not self._fits(size):
            return False
        piece, end = self._memory.room(size)
        for one in pieces:
            piece[end : end + len(one)] = one
            end += len(one)
        self._memory.keep(size)
        self._count(entry, size)
        return self._size < self._max_bytes

    # --- counting ------------------------------------------------------------------------------------------------

    def _take(self, entry: SidecarEntry, pieces: list[Bytes]) -> bool:
        """Add one batch; False when it does not fit any more, or nothing more does."""
        size = sum(len(piece) for piece in pieces)
        if not self._fits(size):
            return False
        self._memory.emit()
        self._buffers.extend(pieces)
        self._count(entry, size)
        return self._size < self._max_bytes

    def _count(self, entry: SidecarEntry, size: int) -> None:
        self._batches += 1
        self._rows += entry.record_count
        self._size += size
        self._next_offset = entry.next_offset

    def _count_skipped(self, entry: SidecarEntry) -> None:
        self._batches_skipped += 1
        self._rows_skipped += entry.record_count
        self._bytes_skipped += entry.batch_size
        self._next_offset = entry.next_offset

    def _may_go_on(self) -> bool:
        return self._bytes_skipped < SKIPPED_BYTES_MAX and self._batches_skipped < SKIPPED_BATCHES_MAX
