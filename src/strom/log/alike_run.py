"""Batches that follow each other in a log and are all cut alike, read one after the other.

Head and wanted columns of a batch come with one read, straight to where the new batch is to lie. The head is held
against its checksum and against what was expected, every buffer against its own checksum. The checksums of the new
batches are joined from those, for all of them at once: ``seal`` before anybody looks at them.
"""

from __future__ import annotations

from collections.abc import Sequence

from strom.log.memory import AnswerMemory, rooms_of
from strom.log.sidecar import Entry
from strom.record.alike import Alike
from strom.record.checksum import crc32c, crc32c_parts
from strom.runtime.files import File


class AlikeRun:
    """One run; ``memory`` is where its batches go."""

    def __init__(self, log: File, alike: Alike, memory: AnswerMemory) -> None:
        self._log = log
        self._alike = alike
        self._memory = memory
        self._head = bytearray(alike.head_size)
        self._places: list[tuple[memoryview, int]] = []
        self._crcs: list[tuple[int, ...]] = []
        """Of each batch: that of its new head, then those of its buffers."""

    def read(self, entry: Entry, crcs: Sequence[int]) -> bool:
        """Read the batch of ``entry``, which has the size of those before it.

        False when it is cut in another way, or when anything is wrong with it: who then cuts it as every other batch
        finds out what. The answer is as it was before.
        """
        alike, head, log = self._alike, self._head, self._log
        piece, start = self._memory.room(alike.size)
        body_start = start + alike.body_start
        expected = alike.pick(crcs)
        if not alike.together and log.read_into(entry.position, [memoryview(head)]) != alike.head_size:
            return False
        done = 0
        for step in alike.steps:
            rooms, size = rooms_of(piece, body_start, step), step.size
            begin = entry.position + step.start
            if not done and alike.together:
                rooms.insert(0, memoryview(head))
                begin, size = entry.position, size + alike.head_size
            if log.read_into(begin, rooms) != size:
                return False
            found = crc32c_parts(piece, step.buffers, start=body_start)
            if found != expected[done : done + len(found)]:
                return False
            done += len(found)
        if crc32c(head) != entry.head_crc:
            return False
        crc = alike.write_head(head, piece, start)
        if crc is None:
            return False
        for zero, end, content in alike.zeros:
            piece[body_start + zero : body_start + end] = content
        self._memory.keep(alike.size)
        self._places.append((piece, start))
        self._crcs.append((crc, *expected))
        return True

    def seal(self) -> None:
        """Write the checksums of all batches that were read."""
        self._alike.seal(self._places, self._crcs)
