"""Many small reads at once: a disk serves sixteen in hardly more time than one."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from strom.runtime.files import File

DEPTH: Final = 16
TOGETHER: Final = 4
"""Reads that one thread does: handing over fewer costs more than they take."""

Read = tuple[File, int, memoryview]
"""File, position, room for the bytes."""


class ParallelReads:
    """Fills rooms from files, in threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(DEPTH, thread_name_prefix="strom-pages")

    def __call__(self, reads: Sequence[Read]) -> bool:
        """Fill all rooms; False when a file ended early."""
        if len(reads) < 2 * TOGETHER:
            return _fill(reads)
        share = max(TOGETHER, -(-len(reads) // DEPTH))
        parts = [reads[start : start + share] for start in range(0, len(reads), share)]
        return all(list(self._threads.map(_fill, parts)))


def _fill(reads: Sequence[Read]) -> bool:
    return all(file.read_into(position, [room]) == len(room) for file, position, room in reads)
