"""The header of a record batch: what it says about the bytes that follow. Format: docs/formats/record_batch.md."""

from __future__ import annotations

import struct
from typing import NamedTuple

from strom.errors import MalformedBatch, TornBatch
from strom.record import layout as at
from strom.runtime.files import Bytes

_LENGTH_MAGIC = struct.Struct("<ib")


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
    def damaged(self) -> bool:
        """Whether it takes the place of records that were given up as damaged."""
        return bool(self.attributes & at.ATTRIBUTE_DAMAGED)

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
