"""One run: its fences and filter in memory, its pages on disk.

A page that is not what was written is never used: :class:`StoreCorrupt`.
"""

from __future__ import annotations

import numpy as np

from strom.errors import StoreCorrupt
from strom.kv.arrays import Hashes, Int64s, Octets
from strom.kv.kernels.reserved_memory import address_of
from strom.kv.runs import run_kernels as kernels
from strom.kv.runs.run_layout import BLOCK_BYTES, FENCE_BYTES, PAGE_BYTES, RunRef
from strom.record.checksum import crc32c, crc32c_parts
from strom.runtime.files import File, Files

_CRC_BYTES = 4
READ_PAGES = 256
"""Pages read at once when a whole run is read."""


class IndexRun:
    """A run that is open."""

    def __init__(self, ref: RunRef, file: File, end: bytes) -> None:
        """``end``: the bytes of fences and filter."""
        if len(end) != ref.end_bytes or crc32c(end) != ref.crc:
            raise not_written(file.path, ref.end_at)
        self.ref = ref
        self.file = file
        self.fences: Hashes = np.frombuffer(end, "<u8", ref.pages)
        self.filter: Hashes = np.frombuffer(
            end, "<u8", ref.blocks * BLOCK_BYTES // 8, ref.pages * FENCE_BYTES
        )

    @property
    def memory_bytes(self) -> int:
        """Fences and filter."""
        return self.ref.end_bytes

    @property
    def fields(self) -> list[int]:
        """As kernels see it."""
        return [address_of(self.filter), self.ref.blocks, address_of(self.fences), self.ref.pages]

    def entries(self) -> tuple[Hashes, Int64s]:
        """All of it, read and checked."""
        ref = self.ref
        hashes, versions = np.empty(ref.entries, np.uint64), np.empty(ref.entries, np.int64)
        done = 0
        for number in range(0, ref.pages, READ_PAGES):
            room = np.empty((min(READ_PAGES, ref.pages - number), PAGE_BYTES), np.uint8)
            position = ref.position + number * PAGE_BYTES
            read = self.file.read_into(position, [memoryview(room.data).cast("B")])
            wrong = 0 if read < room.nbytes else wrong_page(room)
            if wrong >= 0:
                raise not_written(self.file.path, position + wrong * PAGE_BYTES)
            taken = kernels.take_pages(room, number, hashes[done:], versions[done:])
            if taken < 0 or (done and taken and hashes[done] < hashes[done - 1]):
                raise not_written(self.file.path, position)
            done += taken
        down = np.uint64(63 - ref.depth)
        if done != ref.entries or (done and ((hashes >> np.uint64(1)) >> down != ref.prefix).any()):
            raise not_written(self.file.path, ref.position)
        return hashes, versions


def open_run(files: Files, folder: str, ref: RunRef) -> IndexRun:
    """Read a run's fences and filter."""
    path = f"{folder}/{ref.file}"
    if not files.exists(path):
        raise StoreCorrupt(f"{path}: a file of the index is missing", path=path)
    file = files.open(path)
    return IndexRun(ref, file, file.read_at(ref.end_at, ref.end_bytes))


def wrong_page(room: Octets) -> int:
    """The first of some pages whose checksum does not fit; -1: all do."""
    parts = [(at + _CRC_BYTES, PAGE_BYTES - _CRC_BYTES) for at in range(0, room.nbytes, PAGE_BYTES)]
    found = np.array(crc32c_parts(memoryview(room.data).cast("B"), parts), np.uint32)
    wrong = np.flatnonzero(found != room[:, :_CRC_BYTES].copy().view("<u4")[:, 0])
    return int(wrong[0]) if len(wrong) else -1


def not_written(path: str, position: int) -> StoreCorrupt:
    """What is at this place is not what was written there."""
    return StoreCorrupt(f"{path}: the index at {position} is not what was written", path=path)
