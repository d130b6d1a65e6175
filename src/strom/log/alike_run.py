"""Batches that follow each other in a log and are all cut alike, read one after the other.

Head and wanted columns of a batch come with one read, straight to where the new batch is to lie. The old head is held
against its checksum, the new body against that which the checksums of its buffers make together; the zeros between
buffers are part of it, whoever wrote them. New heads are written for all batches at once.

A run ends before a batch that is cut in another way, or with which anything is wrong: who then cuts it as every other
batch finds out what.
"""

from __future__ import annotations

import numpy as np

from strom.log.entry_run import EntryRun
from strom.log.memory import AnswerMemory
from strom.record.alike import HEAD, Alike, Stretch
from strom.record.body import NOWHERE
from strom.record.checksum import crc32c
from strom.runtime.files import File


def read_run(log: File, alike: Alike, entries: EntryRun, memory: AnswerMemory) -> int:
    """Read the batches of ``entries`` into the answer's memory; how many of them it was, from the first on."""
    room = memory.room(entries.count * alike.size)
    batches = np.frombuffer(room.piece, np.uint8, entries.count * alike.size, room.start)
    batches = batches.reshape(entries.count, alike.size)
    heads = bytearray(entries.count * alike.head_size)
    alike.write_zeros(batches)
    bodies = alike.body.sums(entries.crcs)
    run = _Run(log, alike, room.piece, memoryview(heads))
    count = 0
    for head_crc, body_crc in zip(entries.head_crcs, bodies, strict=True):
        begin = entries.first.position + count * alike.old_size
        place = room.start + count * alike.size + alike.body_start
        if not run.read(count, begin, place, head_crc, body_crc):
            break
        if not heads.startswith(alike.message, (count + 1) * alike.head_size - len(alike.message)):
            break
        count += 1
    old = np.frombuffer(heads, np.uint8).reshape(entries.count, alike.head_size)
    count = alike.write_heads(old[:count], batches[:count], bodies[:count], entries.first.magic)
    memory.keep(count * alike.size)
    return count


class _Run:
    """Where the bytes of a run come from and go to."""

    def __init__(self, log: File, alike: Alike, piece: memoryview, heads: memoryview) -> None:
        self._log = log
        self._alike = alike
        self._piece = piece
        self._heads = heads
        self._nowhere = memoryview(bytearray(alike.gap_bytes_max))

    def read(self, number: int, begin: int, place: int, head_crc: int, body_crc: int) -> bool:
        """Read one batch, which lies at ``begin``; its body goes to ``place``. False when anything is wrong."""
        alike, piece = self._alike, self._piece
        head = self._heads[number * alike.head_size : (number + 1) * alike.head_size]
        found = 0
        for stretch in alike.stretches:
            rooms = self._rooms(stretch, head, place)
            if self._log.read_into(begin + stretch.start, rooms) != stretch.size:
                return False
            # Now, while the bytes are in the processor's cache.
            found = crc32c(piece[place + stretch.place : place + stretch.end], found)
        return found == body_crc and crc32c(head) == head_crc

    def _rooms(self, stretch: Stretch, head: memoryview, place: int) -> list[memoryview]:
        rooms = []
        for start, length in stretch.rooms:
            if start >= 0:
                rooms.append(self._piece[place + start : place + start + length])
            else:
                assert start in (HEAD, NOWHERE)
                rooms.append(head if start == HEAD else self._nowhere[:length])
        return rooms
