"""One record batch as bytes: read its header, check it, stamp it, seal it.

Who may call what
    ``check``    a server, on every batch that arrives; afterwards lengths, CRC and Arrow structure can be relied on
    ``stamp``    the log, on a checked batch; touches only bytes outside the CRC
    ``seal``     a writer, before it sends; the only one that computes the CRC anew

A batch without records (count 0, last offset delta 0, no Arrow message) is legal: it consumes one offset.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from strom.errors import ChecksumMismatch, MalformedBatch, RecordTooLarge, TornBatch
from strom.record import layout as at
from strom.record.checksum import crc32c
from strom.record.columns import BatchColumns, ColumnLayout
from strom.record.message import read_metadata, verify_message
from strom.record.summing import sum_up
from strom.runtime.files import Bytes

_MIB = 1024 * 1024
_STAMP_OFFSET = struct.Struct("<q")
_STAMP_TIMESTAMP = struct.Struct("<q")
_SEAL = struct.Struct("<qi")
_CRC = struct.Struct("<I")
_LENGTH_MAGIC = struct.Struct("<ib")


@dataclass(frozen=True)
class BatchLimits:
    """What a batch may claim before anything is allocated for it."""

    batch_bytes_max: int = 100 * _MIB
    decompressed_bytes_max: int = 256 * _MIB
    records_max: int = 1 << 27


DEFAULT_LIMITS = BatchLimits()


class BatchHeader(NamedTuple):
    """The fixed part of a batch, and where its records start."""

    base_offset: int
    size: int
    """Bytes of the whole batch, header included."""
    magic: int
    timestamp_ms: int
    epoch: int
    """-1 when the magic has no field for it."""
    crc: int
    schema_id: int
    attributes: int
    last_offset_delta: int
    writer_id: int
    batch_sequence: int
    record_count: int
    statistics_size: int
    records_position: int
    """Where offset deltas (sparse), change types and the Arrow message start."""

    @property
    def append_only(self) -> bool:
        """Whether every record is an append, so that there are no change types."""
        return bool(self.attributes & at.ATTRIBUTE_APPEND_ONLY)

    @property
    def sparse(self) -> bool:
        """Whether records were left out, so that there is an offset delta per record."""
        return bool(self.attributes & at.ATTRIBUTE_SPARSE)

    @property
    def next_offset(self) -> int:
        """The offset after this batch. Not base + count: a batch may hold fewer records than offsets."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def changes_position(self) -> int:
        """Where the change types start (or would start)."""
        if not self.attributes & at.ATTRIBUTE_SPARSE:
            return self.records_position
        return self.records_position + self.record_count * at.OFFSET_DELTA_LENGTH

    @property
    def message_position(self) -> int:
        """Where the Arrow message starts."""
        if self.attributes & at.ATTRIBUTE_APPEND_ONLY:
            return self.changes_position
        return self.changes_position + self.record_count * at.CHANGE_TYPE_LENGTH


def read_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """The header of the batch at ``position``; the batch itself may end after the buffer does."""
    available = len(buffer) - position
    if available < at.HEADER_SIZE_MIN:
        raise TornBatch(
            f"{available} bytes are fewer than a batch header", position=position, available=available
        )
    length, magic = _LENGTH_MAGIC.unpack_from(buffer, position + at.LENGTH_POSITION)
    if not 0 <= magic <= at.MAGIC_MAX:
        raise MalformedBatch(f"no batch has magic {magic}", position=position, magic=magic)
    header_size = at.HEADER_SIZE[magic]
    size = length + at.LENGTH_OVERHEAD
    if size < header_size:
        raise MalformedBatch(f"a batch of {size} bytes cannot hold its header", position=position, size=size)
    if available < header_size:
        raise TornBatch(
            f"{available} bytes are fewer than a batch header", position=position, available=available
        )
    header = _unpack(buffer, position, magic, size)
    if header.record_count < 0 or header.last_offset_delta < 0 or header.statistics_size < 0:
        raise MalformedBatch("a batch header holds a negative count", position=position, header=header)
    if header.records_position > size:
        raise MalformedBatch("the statistics reach past the batch", position=position, header=header)
    return header


def _unpack(buffer: Bytes, position: int, magic: int, size: int) -> BatchHeader:
    fields = at.HEADER[magic].unpack_from(buffer, position)
    if magic == at.MAGIC_PLAIN:
        base, _, _, timestamp, crc, schema_id, attributes, delta, writer, sequence, count = fields
        return BatchHeader(
            base, size, magic, timestamp, at.NO_EPOCH, crc, schema_id, attributes, delta, writer, sequence,
            count, 0, at.HEADER_SIZE[magic],
        )  # fmt: skip
    if magic == at.MAGIC_STATISTICS:
        base, _, _, timestamp, crc, schema_id, attributes, delta, writer, sequence, count, statistics = fields
        epoch = at.NO_EPOCH
    else:
        (
            base,
            _,
            _,
            timestamp,
            epoch,
            crc,
            schema_id,
            attributes,
            delta,
            writer,
            sequence,
            count,
            statistics,
        ) = fields
    return BatchHeader(
        base, size, magic, timestamp, epoch, crc, schema_id, attributes, delta, writer, sequence,
        count, statistics, at.HEADER_SIZE[magic] + statistics,
    )  # fmt: skip


def split(records: Bytes) -> list[tuple[BatchHeader, memoryview]]:
    """The batches of a ``records`` field, one after the other. All of them, or TornBatch / MalformedBatch."""
    view = memoryview(records)
    batches = []
    position, end = 0, len(view)
    while position < end:
        header = read_header(view, position)
        if header.size > end - position:
            raise TornBatch(
                f"a batch of {header.size} bytes has only {end - position}",
                position=position,
                size=header.size,
            )
        batches.append((header, view[position : position + header.size]))
        position += header.size
    return batches


def check_crc(view: Bytes, header: BatchHeader) -> None:
    """Raise ChecksumMismatch unless the CRC fits the bytes it covers."""
    _compare_crc(crc32c(memoryview(view)[at.SCHEMA_ID_POSITION[header.magic] : header.size]), header)


def _compare_crc(found: int, header: BatchHeader) -> None:
    if found != header.crc:
        raise ChecksumMismatch(
            f"batch at offset {header.base_offset}: checksum {found:08x}, header says {header.crc:08x}",
            base_offset=header.base_offset,
            expected=header.crc,
            found=found,
        )


class Checked(NamedTuple):
    """What a batch was found to be."""

    header: BatchHeader
    columns: BatchColumns
    buffer_crcs: list[int] | None
    """The checksum of each buffer, where they were asked for."""


def check(
    view: Bytes, *, layout: ColumnLayout | None, limits: BatchLimits = DEFAULT_LIMITS
) -> tuple[BatchHeader, BatchColumns]:
    """Everything a server must know of an arriving batch before it stores it, without decompressing a byte.

    Lengths, CRC, record count against offsets, change types, Arrow metadata in bounds; with a ``layout`` also that
    nodes and buffers are those of the table's schema. Raises RecordTooLarge, TornBatch, ChecksumMismatch or
    MalformedBatch, and nothing else.
    """
    header, columns, _ = check_and_sum(view, layout=layout, limits=limits, sum_from=None)
    return header, columns


def check_and_sum(
    view: Bytes, *, layout: ColumnLayout | None, limits: BatchLimits, sum_from: int | None
) -> Checked:
    """As ``check``; the checksums of the buffers of a batch of more than ``sum_from`` bytes come by the way."""
    view = memoryview(view)
    header = read_header(view)
    if header.size > limits.batch_bytes_max:
        raise RecordTooLarge(
            f"a batch of {header.size} bytes is larger than the limit of {limits.batch_bytes_max}",
            size=header.size,
            limit=limits.batch_bytes_max,
        )
    if header.size != len(view):
        kind = TornBatch if header.size > len(view) else MalformedBatch
        raise kind(f"a batch of {header.size} bytes came as {len(view)}", size=header.size, found=len(view))
    crcs = None
    if sum_from is None or header.size <= sum_from:
        check_crc(view, header)
    else:
        crcs = _sum_and_check_crc(view, header)
    _check_counts(header, limits)
    if not header.attributes & at.ATTRIBUTE_APPEND_ONLY:
        _check_changes(view, header)
    columns = read_columns(view, header)
    if header.message_position == header.size:
        return Checked(header, columns, crcs)
    verify_message(view, header.message_position)
    if layout is not None:
        layout.check(
            view,
            columns,
            record_count=header.record_count,
            decompressed_bytes_max=limits.decompressed_bytes_max,
        )
    return Checked(header, columns, crcs)


def _sum_and_check_crc(view: memoryview, header: BatchHeader) -> list[int]:
    """Check the CRC by way of those of the buffers, and give these."""
    try:
        columns = read_columns(view, header)
    except MalformedBatch:
        check_crc(view, header)  # damaged bytes may say anything: then the checksum is what is wrong
        raise
    found, crcs = sum_up(view, columns, start=at.SCHEMA_ID_POSITION[header.magic])
    _compare_crc(found, header)
    return crcs


def _check_counts(header: BatchHeader, limits: BatchLimits) -> None:
    if header.attributes & ~at.ATTRIBUTE_APPEND_ONLY:
        raise MalformedBatch(f"unknown attributes {header.attributes:#04x}", attributes=header.attributes)
    if header.last_offset_delta != max(header.record_count - 1, 0):
        raise MalformedBatch(
            f"{header.record_count} records do not fit a last offset delta of {header.last_offset_delta}",
            record_count=header.record_count,
            last_offset_delta=header.last_offset_delta,
        )
    if header.record_count > limits.records_max:
        raise MalformedBatch(
            f"{header.record_count} records in one batch are more than {limits.records_max}",
            record_count=header.record_count,
            limit=limits.records_max,
        )


def _check_changes(view: memoryview, header: BatchHeader) -> None:
    start, end = header.changes_position, header.message_position
    if end > header.size:
        raise MalformedBatch("the change types reach past the batch", size=header.size, end=end)
    if start < end and np.frombuffer(view[start:end], np.uint8).max() > at.CHANGE_MAX:
        raise MalformedBatch("unknown change type", base_offset=header.base_offset)


def read_columns(head: Bytes, header: BatchHeader) -> BatchColumns:
    """Where the columns of a batch lie. ``head`` may end where the Arrow body starts: the body is not read."""
    position = header.message_position
    if header.record_count == 0 and position == header.size:
        return BatchColumns(header.size, header.size, (), [], at.NOT_COMPRESSED)
    return read_metadata(
        memoryview(head), position=position, batch_size=header.size, record_count=header.record_count
    )


def stamp(view: bytearray | memoryview, *, base_offset: int, timestamp_ms: int) -> None:
    """Give a batch its place in the log, in place. Both fields lie outside the CRC."""
    _STAMP_OFFSET.pack_into(view, at.BASE_OFFSET_POSITION, base_offset)
    _STAMP_TIMESTAMP.pack_into(view, at.TIMESTAMP_POSITION, timestamp_ms)


def seal(view: bytearray | memoryview, *, writer_id: int, batch_sequence: int) -> None:
    """Give a batch its writer and sequence, in place, and compute the CRC that covers them."""
    magic = read_header(view).magic
    _SEAL.pack_into(view, at.WRITER_ID_POSITION[magic], writer_id, batch_sequence)
    write_crc(view, magic)


def write_crc(view: bytearray | memoryview, magic: int) -> None:
    """Compute the CRC of a batch and put it in its place. ``view`` is exactly the batch."""
    covered = memoryview(view)[at.SCHEMA_ID_POSITION[magic] :]
    _CRC.pack_into(view, at.CRC_POSITION[magic], crc32c(covered))
