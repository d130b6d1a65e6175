"""Batches that are cut as the one before them was: what is known of that one spares most of the work per batch.

Batches of one writer often say the same of their columns, word for word. Who expects that reads head and wanted columns
together, straight to where the new batch is to lie, and then holds the head against the expectation (``write_head``).
Where it is something else, the batch is cut as every other is. Only for batches of appended records.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from strom.record import layout as at
from strom.record.batch import BatchHeader, read_header
from strom.record.body import GAP_BYTES_MAX, NOWHERE, Body, Step
from strom.record.checksum import crc32c
from strom.record.message import message_head

PLAIN_HEADER_SIZE = at.HEADER_SIZE[at.MAGIC_PLAIN]
CRC_FROM = at.SCHEMA_ID_POSITION[at.MAGIC_PLAIN]
CRC_AT = at.CRC_POSITION[at.MAGIC_PLAIN]

_CRC = struct.Struct("<I")
_PLAIN = at.HEADER[at.MAGIC_PLAIN]


class Alike:
    """How batches are cut that say this of their columns."""

    __slots__ = (
        "_checksums",
        "_count",
        "_message",
        "_metadata",
        "body_start",
        "head_size",
        "old_size",
        "pick",
        "size",
        "steps",
        "together",
        "zeros",
    )

    def __init__(self, told: tuple[bytes, int, int, int], metadata: bytes, body: Body) -> None:
        """``told`` is the old metadata, where the body starts, the size of the batch, its rows."""
        old, self.head_size, self.old_size, self._count = told
        self._message = message_head(old)
        self._metadata = metadata
        self._checksums = body.checksums
        self.body_start = PLAIN_HEADER_SIZE + len(metadata)
        """In the new batch."""
        self.size = self.body_start + body.size
        """Of the new batch."""
        self.pick = body.pick
        self.zeros = body.zeros
        self.steps: list[Step] = list(body.steps)
        """As those of the body; the first begins behind the head when they are read ``together``."""
        self.together = bool(self.steps) and self.steps[0].start - self.head_size <= GAP_BYTES_MAX
        if self.together:
            start, size, rooms, buffers = self.steps[0]
            gap = start - self.head_size
            before = [(NOWHERE, gap)] if gap else []
            self.steps[0] = Step(self.head_size, size + gap, [*before, *rooms], buffers)

    def write_head(self, head: bytearray, room: memoryview, start: int) -> int | None:
        """Write the head of the new batch to ``start``, all but its checksum; gives the checksum so far.

        ``head`` is the old one, and sound. None when it says something else than was expected.
        """
        header = read_header(head)
        if header.attributes != at.ATTRIBUTE_APPEND_ONLY or header.record_count != self._count:
            return None
        if header.size != self.old_size or not head.endswith(self._message, header.records_position):
            return None
        if len(head) - header.records_position != len(self._message):
            return None
        write_plain_header(room, header, self.size, start)
        end = start + self.body_start
        room[start + PLAIN_HEADER_SIZE : end] = self._metadata
        return crc32c(room[start + CRC_FROM : end])

    def seal(self, places: Sequence[tuple[memoryview, int]], crcs: Sequence[Sequence[int]]) -> None:
        """Write the checksums of new batches: where each lies, and what its head and its buffers sum up to."""
        for (room, start), crc in zip(places, self._checksums(crcs), strict=True):
            _CRC.pack_into(room, start + CRC_AT, crc)


def write_plain_header(
    target: bytearray | memoryview, header: BatchHeader, size: int, position: int = 0
) -> None:
    """The header of a batch of magic 0 and ``size`` bytes that is otherwise as ``header`` says; no checksum yet."""
    _PLAIN.pack_into(
        target,
        position,
        header.base_offset,
        size - at.LENGTH_OVERHEAD,
        at.MAGIC_PLAIN,
        header.timestamp_ms,
        0,
        header.schema_id,
        header.attributes,
        header.last_offset_delta,
        header.writer_id,
        header.batch_sequence,
        header.record_count,
    )
