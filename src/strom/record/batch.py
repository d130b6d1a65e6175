"""One record batch as bytes: read its header, check it, stamp it, seal it.

Who calls what
    ``check``    a server, on every batch that arrives; afterwards it can be relied on to be readable
    ``stamp``    the log, on a checked batch; touches only bytes outside the CRC
    ``seal``     a writer, before it sends; the only one that recomputes the CRC

A batch without records (count 0, last offset delta 0, no Arrow message) is legal: it consumes one offset.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from strom.errors import ChecksumMismatch, MalformedBatch, RecordTooLarge, TornBatch
from strom.record import layout as at
from strom.record.buffer_checksums import sum_up
from strom.record.checksum import crc32c
from strom.record.columns import BatchColumns, ColumnLayout, buffer_sizes
from strom.record.header import BatchHeader as BatchHeader
from strom.record.header import read_header as read_header
from strom.record.message import read_metadata, verify_message
from strom.record.value_check import check_content
from strom.runtime.files import Bytes

_MIB = 1024 * 1024
_STAMP_OFFSET = struct.Struct("<q")
_STAMP_TIMESTAMP = struct.Struct("<q")
_SEAL = struct.Struct("<qi")
_CRC = struct.Struct("<I")
_SIZE_MAX = 1 << 63


@dataclass(frozen=True)
class BatchLimits:
    """What a batch may claim before anything is allocated for it."""

    batch_bytes_max: int = 100 * _MIB
    decompressed_bytes_max: int = 256 * _MIB
    records_max: int = 1 << 27


DEFAULT_LIMITS = BatchLimits()


BATCHES_WEIGHED = 64


def split(records: Bytes) -> list[tuple[BatchHeader, memoryview]]:
    """The batches of a ``records`` field, in order: all of them, or TornBatch / MalformedBatch."""
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
    """The checksum of each buffer, if they were requested."""
    statistics_hold: bool = True
    """Whether every value lies within the statistics; if not, a filter would drop rows that pass."""


def check(
    view: Bytes, *, layout: ColumnLayout | None, limits: BatchLimits = DEFAULT_LIMITS, content: bool = True
) -> tuple[BatchHeader, BatchColumns]:
    """Everything a server must check about an arriving batch before it stores it.

    Lengths, CRC, record count against offsets, change types, Arrow metadata in bounds; with a ``layout`` also that
    nodes and buffers are those of the table's schema, and that every value can be read. Raises RecordTooLarge,
    TornBatch, ChecksumMismatch or MalformedBatch, and nothing else.

    Without ``content`` values are not checked: for callers that go on to ``decode`` with full validation.
    """
    found = check_and_sum(view, layout=layout, limits=limits, sum_from=None, content=content)
    return found.header, found.columns


def check_and_sum(
    view: Bytes,
    *,
    layout: ColumnLayout | None,
    limits: BatchLimits,
    sum_from: int | None,
    content: bool = True,
    statistics: bool = True,
) -> Checked:
    """As ``check``; also returns the checksums of the buffers of a batch of more than ``sum_from`` bytes.

    With ``statistics`` the values are checked against those too.
    """
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
        if content:
            hold = check_content(
                view,
                header,
                columns,
                layout,
                decompressed_bytes_max=limits.decompressed_bytes_max,
                statistics=statistics,
            )
            return Checked(header, columns, crcs, hold)
    return Checked(header, columns, crcs)


def _sum_and_check_crc(view: memoryview, header: BatchHeader) -> list[int]:
    """Compute the checksums of the buffers and check the CRC with them; returns them."""
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


def work_size(records: memoryview, bytes_max: int) -> int:
    """How many bytes ``check`` will go through; compressed ones count as decompressed.

    Stops counting beyond ``bytes_max``. Unsound records count with their own size.
    """
    if len(records) > bytes_max:
        return len(records)
    total = 0
    try:
        for header, view in split(records):
            columns = read_columns(view, header)
            total += header.size
            if columns.codec != at.NOT_COMPRESSED:
                total += sum(buffer_sizes(view, columns, decompressed_bytes_max=_SIZE_MAX))
    except (MalformedBatch, TornBatch):
        return len(records)
    return total


def heaviest(records: memoryview) -> int:
    """The largest size that one of these batches declares to decompress to; 0 if none is compressed.

    Looks at the first ``BATCHES_WEIGHED`` of them; unsound records count as 0.
    """
    most = position = 0
    try:
        for _ in range(BATCHES_WEIGHED):
            if position >= len(records):
                break
            header = read_header(records, position)
            view = records[position : position + header.size]
            position += header.size
            if header.message_position < header.size:
                columns = read_columns(view, header)
                if columns.codec != at.NOT_COMPRESSED:
                    most = max(most, sum(buffer_sizes(view, columns, decompressed_bytes_max=_SIZE_MAX)))
    except (MalformedBatch, TornBatch):
        return most
    return most


def stamp(view: bytearray | memoryview, *, base_offset: int, timestamp_ms: int) -> None:
    """Give a batch its place in the log, in place. Both fields lie outside the CRC."""
    _STAMP_OFFSET.pack_into(view, at.BASE_OFFSET_POSITION, base_offset)
    _STAMP_TIMESTAMP.pack_into(view, at.TIMESTAMP_POSITION, timestamp_ms)


def seal(view: bytearray | memoryview, *, writer_id: int, batch_sequence: int) -> None:
    """Give a batch its writer and sequence, in place, and compute the CRC that covers them."""
    magic = read_header(view).magic
    _SEAL.pack_into(view, at.WRITER_ID_POSITION[magic], writer_id, batch_sequence)
    write_crc(view, magic)


def strike_statistics(view: memoryview, header: BatchHeader) -> BatchHeader:
    """Invalidate the statistics of a batch in place, so that readers ignore them; returns its new header."""
    view[header.records_position - header.statistics_size] = at.STATISTICS_STRUCK
    write_crc(view, header.magic)
    return read_header(view)


def write_crc(view: bytearray | memoryview, magic: int) -> None:
    """Compute the CRC of a batch and put it in its place. ``view`` is exactly the batch."""
    covered = memoryview(view)[at.SCHEMA_ID_POSITION[magic] :]
    _CRC.pack_into(view, at.CRC_POSITION[magic], crc32c(covered))
