"""A run of consecutive batches that are all cut alike.

Head and wanted columns of a batch come with one read, straight into the place of the new batch. The old head is checked
against its checksum, the new body against the one joined from the checksums of its buffers; this covers the zeros
between buffers, whether read or written here. New heads are written for all batches at once.

A run ends before a batch that is cut differently, or has anything wrong: it is then read the general way, which says
what is wrong.
"""

from __future__ import annotations

import numpy as np

from strom.log.entry_run import EntryRun
from strom.log.reading.answer_memory import AnswerMemory
from strom.record.alike_batches import HEAD, Alike, Stretch
from strom.record.body import NOWHERE
from strom.record.checksum import crc32c, summing_in
from strom.runtime.files import File


def read_run(log: File, alike: Alike, entries: EntryRun, memory: AnswerMemory) -> int:
    """Read the batches of ``entries`` into the answer's memory; returns how many of them, from the first on."""
    room = memory.room(entries.batches * alike.size)
    batches = np.frombuffer(room.piece, np.uint8, entries.batches * alike.size, room.start)
    batches = batches.reshape(entries.batches, alike.size)
    heads = bytearray(entries.batches * alike.head_size)
    alike.write_zeros(batches)
    bodies = alike.body.sums(entries.crcs)
    run = _Run(log, alike, room.piece, memoryview(heads))
    begin, place = entries.first.position, room.start + alike.body_start
    count = head = 0
    for head_crc, body_crc in zip(entries.head_crcs, bodies, strict=True):
        if run.read(begin, head, place) != body_crc:
            break
        old = bytes(run.heads[head : head + alike.head_size])
        if crc32c(old) != head_crc or not old.endswith(alike.message):
            break
        begin += alike.old_size
        place += alike.size
        head += alike.head_size
        count += 1
    found = np.frombuffer(heads, np.uint8).reshape(entries.batches, alike.head_size)
    count = alike.write_heads(found[:count], batches[:count], bodies[:count], entries.first.magic)
    memory.keep(count * alike.size)
    return count


class _Run:
    """Where the bytes of a run come from and go to."""

    def __init__(self, log: File, alike: Alike, piece: memoryview, heads: memoryview) -> None:
        self.heads = heads
        self._log = log
        self._alike = alike
        self._piece = piece
        self._sum_up = summing_in(piece)
        self._nowhere = memoryview(bytearray(alike.gap_bytes_max))

    def read(self, begin: int, head: int, place: int) -> int | None:
        """Read the batch that lies at ``begin``: its head to ``head``, its new body to ``place``.

        Returns the checksum of the new body; None when the log ends within it.
        """
        found = 0
        for stretch in self._alike.stretches:
            if self._log.read_into(begin + stretch.start, self._rooms(stretch, head, place)) != stretch.size:
                return None
            # Now, while the bytes are in the processor's cache.
            found = self._sum_up(place + stretch.place, place + stretch.end, found)
        return found

    def _rooms(self, stretch: Stretch, head: int, place: int) -> list[memoryview]:
        rooms = []
        for start, length in stretch.rooms:
            if start >= 0:
                rooms.append(self._piece[place + start : place + start + length])
            elif start == HEAD:
                rooms.append(self.heads[head : head + length])
            else:
                assert start == NOWHERE
                rooms.append(self._nowhere[:length])
        return rooms
