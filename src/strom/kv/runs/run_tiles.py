"""All runs of an index, by tile: what the disk knows about some hashes. Immutable; safe in any thread.

A question goes to the newest run of its tile whose filter has the hash, then to older ones until one has it. Each round
asks all filters in one kernel and reads the pages that are needed once each, many at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from strom.errors import StoreCorrupt
from strom.kv.arrays import Hashes, Int32s, Int64s, Octets
from strom.kv.runs import run_kernels as kernels
from strom.kv.runs.merging import DEPTH_MAX, Entries, merged
from strom.kv.runs.run import IndexRun, not_written, wrong_page
from strom.kv.runs.run_layout import PAGE_BYTES, RunRef
from strom.kv.runs.run_reads import PageRead, RunReads

Place = tuple[int, int]
"""Prefix and depth."""


class FoundVersions(NamedTuple):
    """Versions by question, ``GONE`` left out; a question may have several."""

    which: Int64s
    versions: Int64s


class RunTiles:
    """The runs of one index as of one manifest."""

    def __init__(self, tiles: Sequence[tuple[Place, Sequence[IndexRun]]], reads: RunReads) -> None:
        """``tiles``: by rising hashes, the runs of each from the oldest to the newest. They cover every hash."""
        self.tiles = tuple((place, tuple(runs)) for place, runs in tiles)
        self.reads = reads
        self._runs = [run for _, runs in self.tiles for run in runs]
        self._files = [run.file for run in self._runs]
        self._positions = np.array([run.ref.position for run in self._runs], np.int64)
        self._starts = np.cumsum([0, *(len(runs) for _, runs in self.tiles)], dtype=np.int64)
        self._fields = np.array([run.fields for run in self._runs], np.int64).reshape(-1, kernels.RUN_FIELDS)
        self._directory, self._shift = _directory([place for place, _ in self.tiles])

    @property
    def refs(self) -> tuple[RunRef, ...]:
        """For the manifest."""
        return tuple(run.ref for run in self._runs)

    @property
    def memory_bytes(self) -> int:
        """Fences and filters."""
        return sum(run.memory_bytes for run in self._runs)

    @property
    def bytes(self) -> int:
        """On disk."""
        return sum(run.ref.bytes for run in self._runs)

    @property
    def entries(self) -> int:
        """Of all runs together; a key may have several."""
        return sum(run.ref.entries for run in self._runs)

    def may_have(self, hashes: Hashes) -> Int64s:
        """The positions of the hashes that some filter has. No disk."""
        run, page = np.full(len(hashes), -1, np.int64), np.empty(len(hashes), np.int64)
        if not len(hashes) or not self._ask(hashes, run, page):
            return np.empty(0, np.int64)
        return np.flatnonzero(run >= 0)

    def find(self, hashes: Hashes) -> FoundVersions:
        """Everything known about these hashes."""
        self.reads.asked += len(hashes)
        positions = np.arange(len(hashes))
        run, page = np.full(len(hashes), -1, np.int64), np.empty(len(hashes), np.int64)
        which: list[Int64s] = []
        versions: list[Int64s] = []
        while len(positions) and self._ask(hashes[positions], run, page):
            there = np.flatnonzero(run >= 0)
            positions, run, page = positions[there], run[there], page[there]
            unanswered = np.ones(len(positions), np.bool_)
            asked, at = np.arange(len(positions)), page.copy()
            while len(asked):
                one, found, going = self._look(hashes[positions[asked]], run[asked], at[asked])
                unanswered[asked[one]] = False
                kept = found >= 0
                which.append(positions[asked[one[kept]]])
                versions.append(found[kept])
                asked = asked[going]  # keys that share a hash, more than a page holds
                at[asked] += 1
            positions, run = positions[unanswered], run[unanswered]  # a filter was wrong: on to older runs
            page = np.empty(len(positions), np.int64)
        return FoundVersions(np.concatenate([np.empty(0, np.int64), *which]),
                             np.concatenate([np.empty(0, np.int64), *versions]))  # fmt: skip

    def merged_tile(self, number: int) -> Entries:
        """What a tile knows, read from the disk."""
        runs = self.tiles[number][1]
        return merged(runs, (np.empty(0, np.uint64), np.empty(0, np.int64)))

    def _ask(self, hashes: Hashes, run: Int64s, page: Int64s) -> int:
        return int(
            kernels.ask_filters(hashes, self._shift, self._directory, self._starts, self._fields, run, page)
        )

    def _look(self, hashes: Hashes, run: Int64s, page: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """(question, version) of the entries in one page each, and the questions to ask of the next page too."""
        pages, place = np.unique((run << 32) | page, return_inverse=True)
        room = self._pages(pages >> 32, pages & 0xFFFFFFFF)
        first, count = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int64)
        place = place.astype(np.int64, copy=False)
        kernels.find_in_pages(room, place, hashes, first, count)
        going = [
            i
            for i in np.flatnonzero(count < 0).tolist()
            if page[i] + 1 < len(fences := self._runs[run[i]].fences) and fences[page[i] + 1] == hashes[i]
        ]
        count = np.abs(count)
        which, versions = np.empty(int(count.sum()), np.int64), np.empty(int(count.sum()), np.int64)
        kernels.take_versions(room, place, first, count, which, versions)
        self.reads.give_back(room)
        return which, versions, np.array(going, np.int64)

    def _pages(self, runs: Int64s, pages: Int64s) -> Octets:
        """These pages, checked."""
        room = self.reads.room(len(runs))
        octets = memoryview(room.data).cast("B")
        rooms = [octets[start : start + PAGE_BYTES] for start in range(0, len(octets), PAGE_BYTES)]
        positions = (self._positions[runs] + pages * PAGE_BYTES).tolist()
        files = [self._files[number] for number in runs.tolist()]
        reads: list[PageRead] = list(zip(files, positions, rooms, strict=True))
        self.reads.pages += len(reads)
        if not self.reads.read(reads):  # what was not filled may be a sound page of an earlier question
            beyond = (one for one in reads if one[1] + PAGE_BYTES > one[0].size())
            file, position, _ = next(beyond, reads[0])
            raise not_written(file.path, position)
        wrong = wrong_page(room)
        if wrong < 0:
            wrong = int(kernels.strange_page(room, pages))
        if wrong >= 0:
            raise not_written(reads[wrong][0].path, reads[wrong][1])
        return room


def _directory(places: Sequence[Place]) -> tuple[Int32s, int]:
    depth = max((depth for _, depth in places), default=0)
    if depth > DEPTH_MAX or any(own < 0 for _, own in places):
        raise StoreCorrupt(f"a tile of the index has a depth of {depth}")
    directory = np.full(1 << depth, -1, np.int32)
    reached = 0
    for tile, (prefix, own) in enumerate(places):
        width = 1 << (depth - own)
        if prefix * width != reached:
            raise StoreCorrupt(f"the tile {prefix}/{own} of the index is out of place")
        reached += width
        directory[prefix * width : reached] = tile
    if reached != 1 << depth:
        raise StoreCorrupt("tiles of the index are missing")
    return directory, 63 - depth
