"""Batches to the bytes of a remote segment: per extent, each column's buffers side by side, bytes untouched.

In the order of arrival, a reader of two columns of ten either makes a request for every buffer or moves five times
what it wants. Together, a column of an extent is one request. Format: docs/formats/remote_segment.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from strom.errors import MalformedBatch
from strom.log.sidecar import SidecarEntry, check_batch, decode_entry, encode_entry
from strom.record import layout as batch_at
from strom.record.batch import read_columns, read_header
from strom.record.buffer_checksums import sum_up
from strom.record.columns import BatchColumns, ColumnLayout
from strom.remote.chain_leader import SegmentContent
from strom.remote.segment_directory import (
    ColumnPlace,
    EncodedBatch,
    Extent,
    checksum_of,
    directory_size,
    encode_directory,
    with_all_checksums,
)
from strom.runtime.files import Bytes

MIB: Final = 1024 * 1024
COLUMN_BYTES: Final = 512 * 1024
"""A column's share of an extent, about: a request that is worth its time."""
EXTENT_BYTES_MIN: Final = 8 * MIB
EXTENT_BYTES_MAX: Final = 64 * MIB


class LogBatch(NamedTuple):
    """A batch of the log, stamped and stored."""

    view: memoryview
    epoch: int


class _Measured(NamedTuple):
    """A batch that was looked at."""

    view: memoryview
    columns: BatchColumns
    encoded: EncodedBatch
    entry: SidecarEntry


def extent_bytes(column_count: int) -> int:
    """How large an extent becomes before the next one begins."""
    return min(max(column_count * COLUMN_BYTES, EXTENT_BYTES_MIN), EXTENT_BYTES_MAX)


def transpose(
    batches: Sequence[LogBatch], layouts: Mapping[int, ColumnLayout], *, extent_size: int | None = None
) -> SegmentContent:
    """The bytes of a segment of these batches, which follow each other.

    ``layouts`` are those of their schemas, by schema id. Every batch is checked as it is read: ChecksumMismatch when
    it is not what was stored. ``extent_size`` is for tests.
    """
    assert batches, "a segment has a batch at least"
    measured: list[_Measured] = []
    position = 0
    for batch in batches:
        one = _measure(batch, position)
        if measured and one.entry.base_offset != measured[-1].entry.next_offset:
            raise MalformedBatch(
                f"the batch at {one.entry.base_offset} does not follow offset {measured[-1].entry.next_offset}"
            )
        measured.append(one)
        position = one.entry.end_position
    groups = _extents(measured, layouts, extent_size)
    start, end = measured[0].entry.base_offset, measured[-1].entry.next_offset
    content, directory = _joined(start, end, measured, groups)
    return SegmentContent(
        start,
        end,
        content,
        len(directory),
        checksum_of(directory),
        min(one.entry.timestamp_ms for one in measured),
        max(one.entry.timestamp_ms for one in measured),
    )


def _measure(batch: LogBatch, position: int) -> _Measured:
    view = batch.view
    header = read_header(view)
    columns = read_columns(view, header)
    found, crcs = sum_up(view, columns, start=batch_at.SCHEMA_ID_POSITION[header.magic])
    packed = encode_entry(
        view,
        header,
        columns.buffers,
        head_size=columns.head_size,
        base_offset=header.base_offset,
        timestamp_ms=header.timestamp_ms,
        position=position,
        epoch=batch.epoch,
        synced_end=header.next_offset,
        buffer_crcs=crcs,
    )
    encoded = with_all_checksums(packed, crcs)
    entry = decode_entry(encoded)
    assert entry is not None
    if found != header.crc:
        check_batch(view, entry)
        raise AssertionError("a batch that is sound has its checksum")
    rest = _between(view, columns)
    kept = rest if rest.strip(b"\0") else b""
    return _Measured(view, columns, EncodedBatch(encoded, bytes(view[: columns.head_size]), kept), entry)


def _between(view: memoryview, columns: BatchColumns) -> bytes:
    """What lies between the buffers, and behind them."""
    parts, end = [], columns.head_size
    for position, length in columns.buffers:
        if length:
            parts.append(view[end:position])
            end = position + length
    parts.append(view[end:])
    return b"".join(parts)


class _Group(NamedTuple):
    """The batches of an extent."""

    first: int
    batches: list[_Measured]
    buffer_counts: tuple[int, ...]
    """By column."""


def _extents(
    measured: Sequence[_Measured], layouts: Mapping[int, ColumnLayout], extent_size: int | None
) -> list[_Group]:
    """Whole batches of one schema, up to about the size of an extent."""
    groups: list[_Group] = []
    size = schema_id = 0
    for number, one in enumerate(measured):
        layout = layouts[one.entry.schema_id]
        if one.columns.buffers and len(one.columns.buffers) != layout.buffer_count:
            raise MalformedBatch(
                f"the batch at {one.entry.base_offset} does not have the columns of its schema"
            )
        limit = extent_size or extent_bytes(len(layout.columns))
        if not groups or schema_id != one.entry.schema_id or size + one.entry.batch_size > limit:
            counts = tuple(column.buffer_end - column.buffer_start for column in layout.columns)
            groups.append(_Group(number, [], counts))
            size, schema_id = 0, one.entry.schema_id
        groups[-1].batches.append(one)
        size += one.entry.batch_size
    return groups


def _joined(
    start: int, end: int, measured: Sequence[_Measured], groups: Sequence[_Group]
) -> tuple[bytes, bytes]:
    """The whole object, and its directory."""
    encoded = [one.encoded for one in measured]
    position = directory_size(encoded, [len(group.buffer_counts) for group in groups])
    pieces: list[Bytes] = []
    extents = []
    for group in groups:
        columns, first = [], 0
        for count in group.buffer_counts:
            began = position
            for one in group.batches:
                for place, length in one.columns.buffers[first : first + count]:
                    if length:
                        pieces.append(one.view[place : place + length])
                        position += length
            columns.append(ColumnPlace(began, position - began, count))
            first += count
        extents.append(Extent(group.first, len(group.batches), tuple(columns)))
    directory = encode_directory(start, end, encoded, extents)
    return b"".join((directory, *pieces)), directory
