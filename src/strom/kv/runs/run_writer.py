"""Writes runs into a new file, which is made durable at the end."""

from __future__ import annotations

import numpy as np

from strom.kv.arrays import Hashes, Int64s
from strom.kv.runs import run_kernels as kernels
from strom.kv.runs.run import IndexRun
from strom.kv.runs.run_layout import BLOCK_BYTES, PAGE_BYTES, PAGE_ENTRIES, RunRef, blocks_for
from strom.record.checksum import crc32c, crc32c_parts
from strom.runtime.files import Files


class RunFileWriter:
    """One file of runs; the caller syncs the folder."""

    def __init__(self, files: Files, folder: str, name: str) -> None:
        self.name = name
        self._file = files.open(f"{folder}/{name}", create=True)
        self._file.truncate(0)  # one of that name may be left from a crash
        self._position = 0

    def write(self, prefix: int, depth: int, hashes: Hashes, versions: Int64s) -> IndexRun:
        """Add a run. ``hashes`` rise, at least one."""
        # Pages are filled up, unless keys share a hash and would be cut apart.
        room = -(-len(hashes) // PAGE_ENTRIES) + 1
        while True:
            pages, fences = np.zeros((room, PAGE_BYTES), np.uint8), np.empty(room, np.uint64)
            count = kernels.fill_pages(hashes, versions, pages, fences)
            if count >= 0:
                break
            room *= 2
        pages = pages[:count]
        parts = [(at + 4, PAGE_BYTES - 4) for at in range(0, pages.nbytes, PAGE_BYTES)]
        sums = np.array(crc32c_parts(memoryview(pages.data).cast("B"), parts), "<u4")
        pages[:, :4] = sums.view(np.uint8).reshape(-1, 4)
        blocks = blocks_for(len(hashes))
        words = np.zeros(blocks * BLOCK_BYTES // 8, np.uint64)
        kernels.fill_filter(hashes, words)
        end = fences[:count].astype("<u8", copy=False).tobytes() + words.astype("<u8", copy=False).tobytes()
        self._file.append([memoryview(pages.data).cast("B"), end])
        ref = RunRef(prefix, depth, self.name, self._position, count, blocks, len(hashes), crc32c(end))
        self._position += ref.bytes
        return IndexRun(ref, self._file, end)

    def close(self) -> None:
        """Make it durable. The runs stay open for reading."""
        self._file.sync()

    def abandon(self) -> None:
        """It will not be used."""
        self._file.close()
