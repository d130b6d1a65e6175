"""A batch that is sent from where its columns lie: only its head is copied.

Its checksum is that of the columns as they were when it was made. They belong to the caller, who may change them later
(an array that shares its memory with numpy), so a batch that must be kept is copied first (``owned``), and that fails
if they have changed: rows that were never given are not sent.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyarrow as pa

from strom.errors import ChecksumMismatch
from strom.record import layout as at
from strom.record.batch import check_crc, read_header
from strom.record.checksum import crc32c
from strom.record.encode import (
    PADDING,
    SMALL_BYTES,
    VARIABLE_TYPES,
    assemble_message,
    buffers_of,
    filled_up,
    head_of,
)
from strom.record.joined_checksum import joined
from strom.record.message import CODEC_NONE
from strom.record.statistics import Collector
from strom.runtime.files import Bytes

_LENGTH = struct.Struct("<i")
_CRC = struct.Struct("<I")


class Gathered:
    """A sealed batch in pieces."""

    __slots__ = ("pieces",)

    def __init__(self, pieces: list[Bytes]) -> None:
        self.pieces = pieces
        """The first holds the header."""

    def joined(self) -> bytearray:
        """A copy as bytes, right after it was made."""
        return bytearray().join(self.pieces)

    def owned(self) -> bytearray:
        """A copy as bytes, later: ChecksumMismatch when the columns have changed since it was made."""
        copy = self.joined()
        try:
            check_crc(copy, read_header(copy))
        except ChecksumMismatch as error:
            raise ChecksumMismatch(
                "rows changed in memory before they were acknowledged, and had to be sent again; do not write to "
                "arrays that were appended before flush() has returned"
            ) from error
        return copy


def gather(
    batch: pa.RecordBatch,
    *,
    schema_id: int,
    statistics: Sequence[int] | None,
    writer_id: int,
    batch_sequence: int,
) -> Gathered | None:
    """The batch, uncompressed and append-only; None where its columns have to be rewritten anyway."""
    rows = batch.num_rows
    if not rows or batch.get_total_buffer_size() < SMALL_BYTES:
        return None
    columns = batch.columns
    found = buffers_of(columns, rows)
    if found is None:
        return None
    nodes, buffers = found
    block, body_crc = _summed_up(columns, buffers, frozenset(statistics or ()))
    metadata, *body = assemble_message(rows, nodes, buffers, CODEC_NONE)
    magic = at.MAGIC_STATISTICS if block else at.MAGIC_PLAIN
    header = head_of(
        rows,
        block,
        None,
        schema_id=schema_id,
        writer_id=writer_id,
        batch_sequence=batch_sequence,
    )
    head = bytearray().join((header, block, metadata))
    body_size = sum(map(len, body))
    _LENGTH.pack_into(head, at.LENGTH_POSITION, len(head) + body_size - at.LENGTH_OVERHEAD)
    head_crc = crc32c(memoryview(head)[at.SCHEMA_ID_POSITION[magic] :])
    _CRC.pack_into(head, at.CRC_POSITION[magic], joined(head_crc, body_crc, body_size))
    return Gathered([head, *body])


def _summed_up(
    columns: Sequence[pa.Array], buffers: Sequence[Bytes], wanted: frozenset[int]
) -> tuple[bytes, int]:
    """The statistics of the wanted columns and the checksum of all, column by column while it is in the cache."""
    collected = Collector()
    crc = place = 0
    for position, column in enumerate(columns):
        end = place + (3 if column.type.id in VARIABLE_TYPES else 2)
        own = buffers[place:end]
        if position in wanted:
            collected.add(position, column, own)
        for buffer in own:
            if length := len(buffer):
                crc = crc32c(buffer, crc)
                if padding := -length % at.BUFFER_ALIGNMENT:
                    crc = crc32c(PADDING[padding], crc)
        place = end
    return filled_up(collected.block()), crc
