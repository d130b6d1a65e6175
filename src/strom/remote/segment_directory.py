"""What lies where in a remote segment: its batches with their heads and checksums, and its extents with their columns.

Format: docs/formats/remote_segment.md. The directory is read first, in one request, and checked; every length in it
is compared with what is really there before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from strom.errors import ChecksumMismatch, MalformedBatch, NewerFormat, TornBatch
from strom.log import layout as log_at
from strom.log.sidecar import SidecarEntry, check_head, decode_buffer_crcs, decode_entry
from strom.record.batch import BatchHeader, read_columns, read_header
from strom.record.checksum import crc32c
from strom.record.columns import BatchColumns
from strom.record.struct_fields import StructField, StructFields, structure

SEGMENT_FORMAT: Final = b"STROMRS1"

SEGMENT_HEADER_FIELDS: Final[StructFields] = (
    StructField("format", "8s"),
    StructField("checksum", "I"),
    StructField("directory_size", "I"),
    StructField("start_offset", "q"),
    StructField("end_offset", "q"),
    StructField("batch_count", "I"),
    StructField("extent_count", "I"),
)
SEGMENT_HEADER: Final = structure(SEGMENT_HEADER_FIELDS)
BATCH_FIELDS: Final[StructFields] = (
    StructField("entry_size", "I"),
    StructField("head_size", "I"),
    StructField("rest_size", "I"),
)
BATCH: Final = structure(BATCH_FIELDS)
EXTENT_FIELDS: Final[StructFields] = (
    StructField("first_batch", "I"),
    StructField("batch_count", "I"),
    StructField("column_count", "I"),
)
EXTENT: Final = structure(EXTENT_FIELDS)
COLUMN_FIELDS: Final[StructFields] = (
    StructField("position", "q"),
    StructField("length", "q"),
    StructField("buffer_count", "I"),
)
COLUMN: Final = structure(COLUMN_FIELDS)

#: The header's fields behind the checksum, which covers them and all of the directory.
CHECKED_FROM: Final = 12


class ColumnPlace(NamedTuple):
    """The buffers of one column of an extent: all batches' side by side."""

    position: int
    length: int
    buffer_count: int
    """Of each batch."""


class Extent(NamedTuple):
    """Batches of one schema whose columns lie together."""

    first_batch: int
    batch_count: int
    columns: tuple[ColumnPlace, ...]


class RemoteBatch(NamedTuple):
    """A batch as the directory knows it."""

    entry: SidecarEntry
    buffer_crcs: tuple[int, ...]
    head: bytes
    rest: bytes
    """What lies between the buffers and behind them; empty: zeros."""
    header: BatchHeader
    columns: BatchColumns


class SegmentDirectory(NamedTuple):
    """A remote segment without its columns' bytes."""

    start_offset: int
    end_offset: int
    batches: tuple[RemoteBatch, ...]
    extents: tuple[Extent, ...]


class EncodedBatch(NamedTuple):
    """A batch on its way into a directory."""

    entry: bytes
    head: bytes
    rest: bytes


def encode_directory(
    start_offset: int, end_offset: int, batches: Sequence[EncodedBatch], extents: Sequence[Extent]
) -> bytes:
    """Header and directory; the positions of columns count from the object's first byte."""
    parts: list[bytes] = []
    for batch in batches:
        parts += (BATCH.pack(len(batch.entry), len(batch.head), len(batch.rest)), *batch)
    for extent in extents:
        parts.append(EXTENT.pack(extent.first_batch, extent.batch_count, len(extent.columns)))
        parts += [COLUMN.pack(*column) for column in extent.columns]
    size = directory_size(batches, [len(extent.columns) for extent in extents])
    header = SEGMENT_HEADER.pack(
        SEGMENT_FORMAT, 0, size, start_offset, end_offset, len(batches), len(extents)
    )
    content = b"".join((header, *parts))
    assert len(content) == size
    checksum = struct.pack("<I", crc32c(content[CHECKED_FROM:]))
    return SEGMENT_FORMAT + checksum + content[CHECKED_FROM:]


def directory_size(batches: Sequence[EncodedBatch], column_counts: Sequence[int]) -> int:
    """Bytes before the first extent."""
    return (
        SEGMENT_HEADER.size
        + sum(BATCH.size + sum(map(len, batch)) for batch in batches)
        + sum(EXTENT.size + COLUMN.size * count for count in column_counts)
    )


def checksum_of(directory: bytes) -> int:
    """The checksum that a manifest repeats."""
    return int(SEGMENT_HEADER.unpack_from(directory)[1])


def decode_directory(content: bytes, object_size: int, key: str) -> SegmentDirectory:
    """The directory in the first bytes of an object of this size.

    TornBatch, ChecksumMismatch, MalformedBatch or NewerFormat for anything else.
    """
    if len(content) < SEGMENT_HEADER.size:
        raise TornBatch(f"the remote segment {key} has only {len(content)} bytes", key=key, size=len(content))
    name, checksum, size, start, end, batch_count, extent_count = SEGMENT_HEADER.unpack_from(content)
    if name != SEGMENT_FORMAT:
        kind = NewerFormat if name[:-1] == SEGMENT_FORMAT[:-1] else MalformedBatch
        raise kind(f"the object {key} is no remote segment that this version can read: {name!r}", key=key)
    if size != len(content):
        raise TornBatch(
            f"the directory of {key} has {size} bytes, and {len(content)} were read", key=key, size=size
        )
    if crc32c(content[CHECKED_FROM:]) != checksum:
        raise ChecksumMismatch(f"the directory of {key} does not fit its checksum", key=key)
    walk = _Walk(content, SEGMENT_HEADER.size, key)
    batches = tuple(walk.batch() for _ in range(_bounded(batch_count, size, BATCH.size, key)))
    extents = tuple(walk.extent(object_size) for _ in range(_bounded(extent_count, size, EXTENT.size, key)))
    if walk.position != size:
        raise MalformedBatch(f"the directory of {key} has bytes that belong to nothing", key=key)
    directory = SegmentDirectory(start, end, batches, extents)
    _check(directory, key)
    return directory


class _Walk:
    """Reads one structure after the other."""

    def __init__(self, content: bytes, position: int, key: str) -> None:
        self._content = content
        self._key = key
        self.position = position

    def take(self, size: int) -> bytes:
        start, end = self.position, self.position + size
        if size < 0 or end > len(self._content):
            raise MalformedBatch(f"the directory of {self._key} reaches past its end", key=self._key)
        self.position = end
        return self._content[start:end]

    def batch(self) -> RemoteBatch:
        entry_size, head_size, rest_size = BATCH.unpack(self.take(BATCH.size))
        packed, head, rest = self.take(entry_size), self.take(head_size), self.take(rest_size)
        entry = decode_entry(packed)
        if entry is None or entry.entry_size != entry_size:
            raise ChecksumMismatch(f"an entry of {self._key} does not fit its checksum", key=self._key)
        check_head(head, entry)
        header = read_header(head)
        columns = read_columns(head, header)
        if header.size != entry.batch_size or len(columns.buffers) != entry.buffer_count:
            raise MalformedBatch(f"a batch of {self._key} differs from its entry", key=self._key)
        covered = sum(length for _, length in columns.buffers)
        if rest and len(rest) != header.size - head_size - covered:
            raise MalformedBatch(
                f"a batch of {self._key} has too much or too little between its buffers", key=self._key
            )
        return RemoteBatch(entry, decode_buffer_crcs(packed, 0, entry), head, rest, header, columns)

    def extent(self, object_size: int) -> Extent:
        first, count, column_count = EXTENT.unpack(self.take(EXTENT.size))
        columns = []
        for _ in range(_bounded(column_count, len(self._content), COLUMN.size, self._key)):
            place = ColumnPlace(*COLUMN.unpack(self.take(COLUMN.size)))
            if place.position < 0 or place.length < 0 or place.position + place.length > object_size:
                raise MalformedBatch(f"a column of {self._key} lies outside of it", key=self._key)
            columns.append(place)
        return Extent(first, count, tuple(columns))


def _bounded(count: int, size: int, least: int, key: str) -> int:
    """A count, before anything is made of it: that many structures must fit."""
    if count * least > size:
        raise MalformedBatch(f"the directory of {key} cannot hold {count} of its parts", key=key)
    return count


def _check(directory: SegmentDirectory, key: str) -> None:
    offset, number = directory.start_offset, 0
    for batch in directory.batches:
        if batch.entry.base_offset != offset:
            raise MalformedBatch(f"{key} has a gap or an overlap at offset {offset}", key=key, offset=offset)
        offset = batch.entry.next_offset
    if offset != directory.end_offset or not directory.batches:
        raise MalformedBatch(f"{key} ends at offset {offset}, not at {directory.end_offset}", key=key)
    for extent in directory.extents:
        batches = directory.batches[extent.first_batch : extent.first_batch + extent.batch_count]
        if extent.first_batch != number or len(batches) != extent.batch_count or not batches:
            raise MalformedBatch(f"the extents of {key} do not follow each other", key=key)
        number += extent.batch_count
        _check_extent(extent, batches, key)
    if number != len(directory.batches):
        raise MalformedBatch(f"batches of {key} lie in no extent", key=key)


def _check_extent(extent: Extent, batches: Sequence[RemoteBatch], key: str) -> None:
    """Each column is as long as its buffers together."""
    first = 0
    for column in extent.columns:
        last = first + column.buffer_count
        length = sum(size for batch in batches for _, size in batch.columns.buffers[first:last])
        if length != column.length:
            raise MalformedBatch(f"a column of {key} has {column.length} bytes instead of {length}", key=key)
        first = last
    if any(batch.columns.buffers and len(batch.columns.buffers) != first for batch in batches):
        raise MalformedBatch(f"a batch of {key} has other columns than its extent", key=key)


def with_all_checksums(entry: bytes, crcs: Sequence[int]) -> bytes:
    """A sidecar's entry with the checksum of every buffer: in a segment's own, small batches have none."""
    fields = list(log_at.ENTRY.unpack_from(entry))
    fields[1] = len(crcs)
    packed = log_at.ENTRY.pack(*fields)[log_at.CHECKSUM_LENGTH :] + struct.pack(f"<{len(crcs)}I", *crcs)
    return log_at.CHECKSUM.pack(crc32c(packed)) + packed
