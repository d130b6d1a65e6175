"""The index of one segment: anchors from which a walk along the sidecar begins.

An anchor says that a batch starts there: its offset, its timestamp, its position in the segment and the position of
its entry in the sidecar. Anchors are sparse, so an index answers "where to begin", never "where it is"; the walk
checks every entry it passes. A wrong anchor therefore costs time, not truth.

The active segment's index grows in memory, beside readers in other threads: the offset of an anchor is appended last,
and readers find anchors by offset. The file is written whole at sealing and at checkpoints, is not synced, and is
rebuilt when it is missing or wrong. Format: docs/formats/indexes.md.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from strom.log import layout as at
from strom.log.epochs import Epochs
from strom.record.checksum import crc32c
from strom.record.struct_fields import positions

_CHECKED_FROM = positions(at.INDEX_HEADER_FIELDS)["anchor_count"]
_CODE = "q"


class Anchor(NamedTuple):
    """A batch starts here."""

    offset: int
    position: int
    sidecar_position: int


class SegmentSpan(NamedTuple):
    """What an index says about its segment as a whole: how far it reaches, and when its batches came."""

    base_offset: int
    end_offset: int
    log_size: int
    sidecar_size: int
    last_epoch: int
    """The epoch of its last batch. A log that has it there has everything before it as it was: see ``is_about``."""
    first_timestamp_ms: int
    last_timestamp_ms: int

    def is_about(self, epochs: Epochs) -> bool:
        """Whether the log still holds what the index was made of, and not other batches at the same offsets.

        The file is not synced, so power loss can bring back one that was replaced. But (epoch, offset) is given once
        and a log only grows within an epoch: the same epoch at the last offset means the same batches up to there.
        """
        return self.end_offset == self.base_offset or self.last_epoch == epochs.epoch_of(self.end_offset - 1)


class SegmentIndex:
    """Sparse anchors of one segment, rising in every column."""

    def __init__(self, base_offset: int, *, interval_bytes: int) -> None:
        self._start = Anchor(base_offset, 0, at.SIDECAR_HEADER_SIZE)
        self._interval_bytes = interval_bytes
        self._next_position = 0
        self._columns = _Columns()

    def __len__(self) -> int:
        """How many anchors there are."""
        return len(self._columns.offsets)

    @property
    def start(self) -> Anchor:
        """Where the segment begins: true whatever the file says."""
        return self._start

    def add(self, offset: int, *, timestamp_ms: int, position: int, sidecar_position: int) -> None:
        """A batch starts here; it becomes an anchor when the last one is far enough behind."""
        if position < self._next_position:
            return
        columns = self._columns
        if len(columns.offsets) >= at.ANCHORS_MAX:
            self._columns = columns = columns.every_second()
            self._interval_bytes *= 2
        columns.append(offset, timestamp_ms, position, sidecar_position)
        self._next_position = position + self._interval_bytes

    def before(self, offset: int) -> Anchor:
        """The last anchor at or before ``offset``."""
        columns = self._columns
        return self._anchor(columns, bisect_right(columns.offsets, offset) - 1)

    def before_time(self, timestamp_ms: int) -> Anchor:
        """An anchor at or before the first batch whose timestamp is at least ``timestamp_ms``."""
        columns = self._columns
        return self._anchor(
            columns, bisect_left(columns.timestamps, timestamp_ms, hi=len(columns.offsets)) - 1
        )

    def _anchor(self, columns: _Columns, index: int) -> Anchor:
        if index < 0:
            return self._start
        return Anchor(columns.offsets[index], columns.positions[index], columns.sidecar_positions[index])

    def cut(self, position: int) -> None:
        """Forget anchors at or after ``position`` (of the log)."""
        self._columns = columns = self._columns.first(bisect_left(self._columns.positions, position))
        self._next_position = columns.positions[-1] + self._interval_bytes if columns.positions else 0

    def encode(self, facts: SegmentSpan) -> bytes:
        """The bytes of the file."""
        columns = self._columns
        header = at.INDEX_HEADER.pack(at.INDEX_FORMAT, 0, len(columns.offsets), *facts)
        checked = header[_CHECKED_FROM:] + b"".join(
            _little_endian(column).tobytes() for column in columns.all()
        )
        return at.INDEX_FORMAT + at.CHECKSUM.pack(crc32c(checked)) + checked


class _Columns:
    """The columns of an index. Grows at the end only; anything else makes a new one."""

    def __init__(self) -> None:
        self.offsets = array(_CODE)
        self.timestamps = array(_CODE)
        self.positions = array(_CODE)
        self.sidecar_positions = array(_CODE)

    def all(self) -> tuple[array[int], array[int], array[int], array[int]]:
        return self.offsets, self.timestamps, self.positions, self.sidecar_positions

    def append(self, offset: int, timestamp_ms: int, position: int, sidecar_position: int) -> None:
        self.sidecar_positions.append(sidecar_position)
        self.positions.append(position)
        self.timestamps.append(timestamp_ms)
        self.offsets.append(offset)  # last: readers find anchors by offset

    def every_second(self) -> _Columns:
        return self._taken(slice(None, None, 2))

    def first(self, count: int) -> _Columns:
        return self._taken(slice(count))

    def _taken(self, part: slice) -> _Columns:
        taken = _Columns()
        taken.offsets, taken.timestamps = self.offsets[part], self.timestamps[part]
        taken.positions, taken.sidecar_positions = self.positions[part], self.sidecar_positions[part]
        return taken


def decode_index(
    content: bytes, *, base_offset: int, interval_bytes: int
) -> tuple[SegmentIndex, SegmentSpan] | None:
    """The index in a file's bytes, or None when they are not an index of this segment."""
    if len(content) < at.INDEX_HEADER.size:
        return None
    form, checksum, count, *rest = at.INDEX_HEADER.unpack_from(content)
    facts = SegmentSpan(*rest)
    if form != at.INDEX_FORMAT or checksum != crc32c(content[_CHECKED_FROM:]):
        return None
    column_size = count * array(_CODE).itemsize
    size = at.INDEX_HEADER.size + column_size * len(at.ANCHOR_FIELDS)
    if len(content) != size or count > at.ANCHORS_MAX or facts.base_offset != base_offset:
        return None
    index = SegmentIndex(base_offset, interval_bytes=interval_bytes)
    for number, column in enumerate(index._columns.all()):
        start = at.INDEX_HEADER.size + number * column_size
        column.frombytes(content[start : start + column_size])
        if sys.byteorder == "big":
            column.byteswap()
    index.cut(facts.log_size)
    return index, facts


def _little_endian(column: array[int]) -> array[int]:
    if sys.byteorder == "little":
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped
