"""Batches cut exactly like the one before them: what is known of that one saves most of the work per batch.

Batches of one writer often have identical Arrow metadata. A reader that expects this reads head and wanted columns
together (``stretches``), straight into the place of the new batch, and then checks the heads against the expectation
(``message``, ``write_heads``). A batch that turns out different is cut the general way. Only for batches of appended
records.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strom.record import layout as at
from strom.record.batch import BatchHeader
from strom.record.body import GAP_BYTES_MAX, NOWHERE, Body
from strom.record.checksum import crc32c
from strom.record.message import message_head

PLAIN_HEADER_SIZE = at.HEADER_SIZE[at.MAGIC_PLAIN]
CRC_FROM = at.SCHEMA_ID_POSITION[at.MAGIC_PLAIN]
CRC_AT = at.CRC_POSITION[at.MAGIC_PLAIN]

HEAD = -2
"""Where the old head goes; see ``body.NOWHERE``."""

_PLAIN = at.HEADER[at.MAGIC_PLAIN]
_LENGTH_MAGIC = struct.Struct("<ib")
_NUMBER = struct.Struct("<i")
_Octets = npt.NDArray[np.uint8]
_STAMPED = (
    slice(at.BASE_OFFSET_POSITION, at.BASE_OFFSET_POSITION + at.BASE_OFFSET_LENGTH),
    slice(at.TIMESTAMP_POSITION, at.TIMESTAMP_POSITION + at.TIMESTAMP_LENGTH),
)
_SIZE_FIELDS = slice(at.LENGTH_POSITION, at.MAGIC_POSITION + at.MAGIC_LENGTH)
_CRC_FIELD = slice(CRC_AT, CRC_AT + at.CRC_LENGTH)
_COVERED_LENGTH = PLAIN_HEADER_SIZE - CRC_FROM
"""Packs the fields from the schema id to the record count, which are the same for every magic."""


class Stretch(NamedTuple):
    """One read, and what it contributes to the new body."""

    start: int
    """In the old batch."""
    size: int
    rooms: list[tuple[int, int]]
    """(start in the new body, length) of each part; ``HEAD`` and ``NOWHERE`` for what does not go there."""
    place: int
    end: int
    """This read and its zeros complete the new body from ``place`` to ``end``."""


class Alike:
    """How to cut batches with one particular Arrow metadata."""

    __slots__ = (
        "_count",
        "_metadata",
        "_sizes",
        "body",
        "body_start",
        "gap_bytes_max",
        "head_size",
        "message",
        "old_size",
        "size",
        "stretches",
    )

    def __init__(self, outline: tuple[bytes, int, int, int], metadata: bytes, body: Body) -> None:
        """``outline``: the old metadata, where the body starts, the size of the batch, its rows."""
        old, self.head_size, self.old_size, self._count = outline
        self.message = message_head(old)
        """The old head must end with this."""
        self.body = body
        self.body_start = PLAIN_HEADER_SIZE + len(metadata)
        """In the new batch."""
        self.size = self.body_start + body.size
        """Of the new batch."""
        self._metadata = _octets(metadata)
        self._sizes = _octets(_LENGTH_MAGIC.pack(self.size - at.LENGTH_OVERHEAD, at.MAGIC_PLAIN))
        self.stretches = _stretches(self.head_size, body)
        gaps = [length for one in self.stretches for place, length in one.rooms if place == NOWHERE]
        self.gap_bytes_max = max(gaps, default=0)

    def write_zeros(self, batches: _Octets) -> None:
        """Write the zeros between the buffers of new batches, one batch per row, before the buffers are read."""
        for start, end, _ in self.body.zeros:
            batches[:, self.body_start + start : self.body_start + end] = 0

    def write_heads(self, old: _Octets, new: _Octets, bodies: Sequence[int], magic: int) -> int:
        """Write the heads of new batches, one per row, from the old ones, which are sound and end with ``message``.

        ``bodies`` are the checksums of the new bodies. Returns how many, from the first on, are as expected; the rows
        of the others are undefined.
        """
        count = self._count_expected(old, magic)
        old, new = old[:count], new[:count]
        for field in _STAMPED:
            new[:, field] = old[:, field]
        new[:, _SIZE_FIELDS] = self._sizes
        start = at.SCHEMA_ID_POSITION[magic]
        new[:, CRC_FROM:PLAIN_HEADER_SIZE] = old[:, start : start + _COVERED_LENGTH]
        new[:, PLAIN_HEADER_SIZE : self.body_start] = self._metadata
        covered, length = new[:, CRC_FROM : self.body_start].tobytes(), self.body_start - CRC_FROM
        heads = [crc32c(covered[start : start + length]) for start in range(0, count * length, length)]
        crcs = self.body.joined(heads, bodies[:count]).astype("<u4")
        new[:, _CRC_FIELD] = crcs.view(np.uint8).reshape(count, at.CRC_LENGTH)
        return count

    def _count_expected(self, old: _Octets, magic: int) -> int:
        """How many heads, from the first on, belong to batches of this size with this many appended records."""
        statistics = self.head_size - len(self.message) - at.HEADER_SIZE[magic]
        fields = [
            (at.LENGTH_POSITION, _LENGTH_MAGIC.pack(self.old_size - at.LENGTH_OVERHEAD, magic)),
            (at.ATTRIBUTES_POSITION[magic], bytes([at.ATTRIBUTE_APPEND_ONLY])),
            (at.LAST_OFFSET_DELTA_POSITION[magic], _NUMBER.pack(self._count - 1)),
            (at.RECORD_COUNT_POSITION[magic], _NUMBER.pack(self._count)),
        ]
        if magic != at.MAGIC_PLAIN:
            fields.append((at.STATISTICS_LENGTH_POSITION[magic], _NUMBER.pack(statistics)))
        elif statistics:
            return 0
        places = [start + octet for start, content in fields for octet in range(len(content))]
        expected = _octets(b"".join(content for _, content in fields))
        fits: list[bool] = (old[:, places] == expected).all(axis=1).tolist()
        return fits.index(False) if False in fits else len(fits)


def _octets(content: bytes) -> _Octets:
    return np.frombuffer(content, np.uint8)


def _stretches(head_size: int, body: Body) -> list[Stretch]:
    """The steps of a body, with the old head in the first of them if that begins near it."""
    places = [0, *(step.buffers[0][0] for step in body.steps[1:])][: len(body.steps)]
    found = [
        Stretch(step.start, step.size, step.rooms, place, end)
        for step, place, end in zip(body.steps, places, [*places[1:], body.size], strict=False)
    ]
    gap = found[0].start - head_size if found else -1
    if not 0 <= gap <= GAP_BYTES_MAX:
        return [Stretch(0, head_size, [(HEAD, head_size)], 0, 0), *found]
    between = [(NOWHERE, gap)] if gap else []
    first = found[0]
    rooms = [(HEAD, head_size), *between, *first.rooms]
    return [first._replace(start=0, size=first.size + head_size + gap, rooms=rooms), *found[1:]]


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
