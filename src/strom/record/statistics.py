"""Statistics of a batch: minimum, maximum and nulls per column, so that a reader can skip it unread.

    version · count · column positions · null counts · row of minima · row of maxima

A column is left out when its bounds would be wrong or useless: text longer than ``TEXT_BYTES_MAX``, a type without
order. Left out means "not known": the batch is then read. Statistics that cannot be understood are treated the same
way, because a skipped batch is a lost row and a read one only lost time.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from operator import is_
from typing import NamedTuple

import pyarrow as pa

from strom.model.filters.predicate_literals import order_key
from strom.record import layout as at
from strom.record.aligned_row import Comparable, ValueSlot, read_field, slot_of, write_row
from strom.record.bounds import bounds
from strom.record.header import BatchHeader, read_header
from strom.runtime.files import Bytes

#: Longer bounds cost every reader of the head more than they save.
TEXT_BYTES_MAX = 64
_COLUMN_MAX = (1 << 15) - 1

_HEAD = struct.Struct("<Bh")
_SIZE = struct.Struct("<i")


class ColumnStatistics(NamedTuple):
    """What is known about one column. The bounds are None when every value is null, or when they are not known."""

    minimum: Comparable | None
    maximum: Comparable | None
    null_count: int


def compute(batch: pa.RecordBatch, columns: Sequence[int]) -> bytes:
    """The statistics of these columns, or nothing when none of them has any."""
    collected = Collector()
    for position in columns:
        collected.add(position, batch.column(position))
    return collected.block()


class Collector:
    """Takes columns one by one, for callers that do something else with each column while it is in the cache."""

    def __init__(self) -> None:
        self._positions: list[int] = []
        self._null_counts: list[int] = []
        self._slots: list[ValueSlot] = []
        self._minima: list[Comparable | None] = []
        self._maxima: list[Comparable | None] = []

    def add(self, position: int, column: pa.Array, buffers: Sequence[Bytes] | None = None) -> None:
        """Add the column at ``position``, in ascending order; ``buffers`` as ``bounds`` takes them."""
        slot = slot_of(column.type)
        if slot is None or position > _COLUMN_MAX:
            return
        found = bounds(column, buffers)
        if found is None or not _fits(found[0], slot) or not _fits(found[1], slot):
            return
        self._positions.append(position)
        self._null_counts.append(column.null_count)
        self._slots.append(slot)
        self._minima.append(found[0])
        self._maxima.append(found[1])

    def block(self) -> bytes:
        """The statistics, or nothing when no column has any."""
        if not self._positions:
            return b""
        return _write(self._positions, self._null_counts, self._slots, self._minima, self._maxima)


def _fits(bound: Comparable | None, slot: ValueSlot) -> bool:
    if isinstance(bound, bytes):
        return len(bound) <= TEXT_BYTES_MAX
    return bound is None or slot.largest is None or abs(bound) <= slot.largest


def _write(
    positions: list[int],
    null_counts: list[int],
    slots: list[ValueSlot],
    minima: list[Comparable | None],
    maxima: list[Comparable | None],
) -> bytes:
    count = len(positions)
    low = write_row(slots, minima)
    single = all(map(is_, minima, maxima))  # a row alone is its own minimum and maximum
    high = low if single else write_row(slots, maxima)
    lists = struct.pack(f"<{count}h{count}i", *positions, *null_counts)
    head = _HEAD.pack(at.STATISTICS_VERSION, count)
    return b"".join((head, lists, _SIZE.pack(len(low)), low, _SIZE.pack(len(high)), high))


def read(
    view: Bytes, schema: pa.Schema, wanted: Collection[int], *, header: BatchHeader | None = None
) -> dict[int, ColumnStatistics]:
    """What the batch says about the wanted columns (positions in ``schema``). ``view`` may end after the statistics.

    A column that is missing in the answer is not known.
    """
    if header is None:
        header = read_header(view)
    start = header.records_position - header.statistics_size
    block = memoryview(view)[start : header.records_position]
    if not len(block):
        return {}
    try:
        return _read(block, schema, wanted)
    except (struct.error, IndexError, KeyError):
        return {}


def _read(block: memoryview, schema: pa.Schema, wanted: Collection[int]) -> dict[int, ColumnStatistics]:
    version, count = _HEAD.unpack_from(block, 0)
    if version != at.STATISTICS_VERSION or count < 0:
        return {}
    numbers = struct.unpack_from(f"<{count}h{count}i", block, _HEAD.size)
    start = _HEAD.size + count * (at.STATISTICS_COLUMN_LENGTH + at.STATISTICS_NULL_COUNT_LENGTH)
    low, start = _row(block, start)
    high, _ = _row(block, start)
    found = {}
    for index in range(count):
        position = numbers[index]
        if position not in wanted or not 0 <= position < len(schema):
            continue
        slot = slot_of(schema.field(position).type)
        if slot is None:
            continue
        minimum = read_field(low, count, index, slot)
        maximum = read_field(high, count, index, slot)
        if (minimum is None) != (maximum is None) or _in_disorder(minimum, maximum):
            continue
        found[position] = ColumnStatistics(minimum, maximum, numbers[count + index])
    return found


def holds(claim: ColumnStatistics, column: pa.Array) -> bool:
    """Whether the statistics of a (sound) column are true, so that a filter drops no row that passes."""
    if claim.null_count != column.null_count:
        return False
    found = None if claim.minimum is None else bounds(column)
    if found is None or found[0] is None:
        return True
    low, high = found
    return not _in_disorder(claim.minimum, low) and not _in_disorder(high, claim.maximum)


def _in_disorder(minimum: Comparable, maximum: Comparable) -> bool:
    return minimum is not None and order_key(minimum) > order_key(maximum)


def _row(block: memoryview, position: int) -> tuple[memoryview, int]:
    size = _SIZE.unpack_from(block, position)[0]
    start = position + _SIZE.size
    if size < 0 or start + size > len(block):
        raise IndexError("a row lies outside the statistics")
    return block[start : start + size], start + size
