"""The memory that an answer is read into: projected batches lie in it one after the other, ready to be sent.

It comes from Arrow's pool and goes back there: the next answer reuses pages that the system has already mapped, which
halves the cost of a read. A few large pieces are less work to send than many small buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from strom.log.sidecar import SidecarEntry, damaged_batch
from strom.record.body import NOWHERE, BodyRead
from strom.record.checksum import crc32c_parts
from strom.record.project import ProjectedBatch
from strom.runtime.files import Bytes, File

PIECE_BYTES_FIRST = 256 * 1024
PIECE_BYTES = 1024 * 1024


class MemorySlice(NamedTuple):
    """A part of a piece of memory."""

    piece: memoryview
    start: int


class AnswerMemory:
    """The memory of one answer, whose ``buffers`` it fills."""

    def __init__(self, buffers: list[Bytes], max_bytes: int) -> None:
        self._buffers = buffers
        self._left = max_bytes
        self._piece = memoryview(b"")
        self._emitted = self._end = 0
        self._piece_bytes = PIECE_BYTES_FIRST

    def room(self, size: int) -> MemorySlice:
        """Room for ``size`` bytes; until it is kept, another call returns the same room."""
        if size > len(self._piece) - self._end:
            self.emit()
            wanted = max(size, min(self._piece_bytes, self._left))
            self._piece = memoryview(pa.allocate_buffer(wanted)).cast("B")
            self._emitted = self._end = 0
            self._piece_bytes = PIECE_BYTES
        return MemorySlice(self._piece, self._end)

    def keep(self, size: int) -> None:
        """Keep the room: it is filled and belongs to the answer."""
        self._end += size
        self._left -= size

    def emit(self) -> None:
        """Put what was kept into the answer, before something else follows or at the end."""
        if self._end > self._emitted:
            self._buffers.append(self._piece[self._emitted : self._end])
            self._emitted = self._end


def read_cut(
    log: File, entry: SidecarEntry, cut: ProjectedBatch, crcs: Sequence[int], room: MemorySlice
) -> None:
    """Read a projected batch into its room and check every buffer against its checksum.

    This is done step by step, while the bytes are in the processor's cache.
    """
    piece, start = room
    body = cut.body
    body_start = start + len(cut.head)
    expected = body.pick(crcs)
    done = 0
    for step in body.steps:
        if log.read_into(entry.position + step.start, rooms_of(piece, body_start, step)) != step.size:
            raise damaged_batch(entry, "the log ends within it")
        found = crc32c_parts(piece, step.buffers, start=body_start)
        if found != expected[done : done + len(found)]:
            raise damaged_batch(entry, "a column does not fit its checksum")
        done += len(found)
    for zero, end, content in body.zeros:
        piece[body_start + zero : body_start + end] = content
    cut.seal(body.checksum(cut.crc, expected))
    piece[start:body_start] = cut.head


def rooms_of(piece: memoryview, body_start: int, step: BodyRead) -> list[memoryview]:
    """Where the parts of a step belong; what lies between them goes to scratch memory."""
    rooms = []
    for place, length in step.rooms:
        if place == NOWHERE:
            rooms.append(memoryview(bytearray(length)))
        else:
            at = body_start + place
            rooms.append(piece[at : at + length])
    return rooms
