"""The runs of an index as of an offset: what changed since the last manifest, as new runs or merged with older ones.

Shards are copied one by one under the lock while writes go on, and stepped back to the offset, as in ``snapshot.py``.
An index that was in memory until now is written tile by tile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np

from strom.errors import StoreCorrupt
from strom.kv.arrays import Hashes, Int64s
from strom.kv.runs.merging import TILE_ENTRIES, Entries, cut, is_merge_due, merged
from strom.kv.runs.run import IndexRun, open_run
from strom.kv.runs.run_layout import GONE, RunRef
from strom.kv.runs.run_reads import RunReads
from strom.kv.runs.run_tiles import Place, RunTiles
from strom.kv.runs.run_writer import RunFileWriter
from strom.kv.snapshot.manifest import INDEX_PREFIX
from strom.kv.store import KeyStore
from strom.runtime.files import Files

USED_SHARE: Final = 2
"""A file of which less than 1/USED_SHARE is still named is given up: its tiles are merged."""

Tile = tuple[Place, Sequence[IndexRun]]


class RunSnapshot:
    """One snapshot of an index that lies in runs, or will."""

    def __init__(self, files: Files, folder: str, store: KeyStore, offset: int, number: int) -> None:
        self._files = files
        self._folder = folder
        self._store = store
        self._offset = offset
        self._name = f"{INDEX_PREFIX}{offset:020d}-{number}"
        self._writers: dict[str, RunFileWriter] = {}
        self._taken: list[Place] = []
        index = store.index
        with store.lock:
            resident = index.resident
            self._before = None if resident is None else resident.tiles
            self._limit = 0 if resident is None else resident.limit
            self._changed = np.empty(0, np.uint64) if resident is None else resident.changed
            self._written = 0 if resident is None else resident.written
            index.mark_dirty_hashes(self._changed)
            self._places = sorted((index.place_of(shard) for shard in range(index.shards)), key=_first_hash)
        self.tiles: RunTiles | None = None

    def write(self) -> RunTiles:
        """Write the runs, and make them durable; the caller syncs the folder."""
        try:
            tiles = list(self._all_of_it() if self._before is None else self._what_changed(self._before))
            for writer in self._writers.values():
                writer.close()
        except BaseException:
            for writer in self._writers.values():
                writer.abandon()
            raise
        self.tiles = RunTiles(tiles, self._store.reads)
        return self.tiles

    def adopt(self) -> None:
        """The manifest is durable: the index lies in these runs. In the lane."""
        assert self.tiles is not None
        store, resident = self._store, self._store.index.resident
        store.forget_undo(self._offset)  # nobody will undo what the runs have
        with store.lock:
            if resident is None:
                store.renumber(*store.index.move_out(self.tiles, self._offset))
            else:
                resident.on_disk(self.tiles, self._offset, self._changed, self._written)
                store.index.make_room()

    def abandon(self) -> None:
        """It failed: what it took counts as changed again. Under the lock."""
        for place in self._taken:
            self._store.index.mark_dirty_below(*place)

    # --- what goes to disk ---------------------------------------------------------------------------------

    def _take(self, place: Place) -> Entries | None:
        """What is below a place as of the offset and differs from the runs there are; rising by hash."""
        store = self._store
        self._taken.append(place)
        with store.lock:
            taken = store.index.entries_below(*place, all_of_it=self._before is None)
            if taken is None:
                return None
            hashes, newest = taken
            versions = store.series.snapshot().step_back(newest, self._offset)
            if (versions != newest).any():
                store.index.mark_dirty_below(*place)
        if self._limit:
            told = hashes[versions >= self._limit]
            told = told if not len(self._changed) else np.concatenate([told, self._changed])
            kept = np.isin(hashes, told)
            hashes, versions = hashes[kept], versions[kept]
        hashes, versions = hashes[versions >= 0], versions[versions >= 0]
        order = np.argsort(hashes, kind="stable")
        return hashes[order], versions[order]

    def _all_of_it(self) -> Iterator[Tile]:
        """Every tile, of an index that was in memory."""
        keys = self._store.index.keys
        depth = min(max(0, (2 * keys // TILE_ENTRIES).bit_length()), min(own for _, own in self._places))
        for prefix, below in groupby(self._places, lambda place: place[0] >> (place[1] - depth)):
            parts = [part for place in below if (part := self._take(place)) is not None]
            yield from self._based(prefix, depth, _joined(parts))

    def _what_changed(self, before: RunTiles) -> Iterator[Tile]:
        """The tiles there are, with what changed in them."""
        parts = [part for place in self._places if (part := self._take(place)) is not None]
        hashes, versions = self._with_gone(_joined(parts))
        wasteful = self._wasteful(before)
        for (prefix, depth), runs in before.tiles:
            first, last = np.searchsorted(hashes, _range(prefix, depth))
            last = len(hashes) if (prefix + 1) >> depth else last
            added = hashes[first:last], versions[first:last]
            if wasteful.isdisjoint(run.ref.file for run in runs) and (
                not len(added[0]) or not is_merge_due(runs, len(added[0]))
            ):
                new = [self._writer("").write(prefix, depth, *added)] if len(added[0]) else []
                yield (prefix, depth), [*runs, *new]
            else:
                yield from self._based(prefix, depth, merged(runs, added))

    def _with_gone(self, entries: Entries) -> Entries:
        """With an entry for each hash that no key has any more."""
        hashes, versions = entries
        gone = self._changed[~np.isin(self._changed, hashes)]
        hashes = np.concatenate([hashes, gone])
        versions = np.concatenate([versions, np.full(len(gone), GONE, np.int64)])
        order = np.argsort(hashes, kind="stable")
        return hashes[order], versions[order]

    def _based(self, prefix: int, depth: int, entries: Entries) -> Iterator[Tile]:
        """A tile with one run, or several if it is too large for one."""
        for own, deep, part in cut(prefix, depth, entries, TILE_ENTRIES):
            yield (own, deep), [self._writer("-base").write(own, deep, *part)] if len(part[0]) else []

    def _writer(self, kind: str) -> RunFileWriter:
        """Base runs live longer than small ones, so they have a file of their own."""
        if kind not in self._writers:
            self._writers[kind] = RunFileWriter(self._files, self._folder, self._name + kind)
        return self._writers[kind]

    def _wasteful(self, before: RunTiles) -> set[str]:
        used: Counter[str] = Counter()
        for ref in before.refs:
            used[ref.file] += ref.bytes
        return {
            file
            for file, size in used.items()
            if size * USED_SHARE < self._files.size(f"{self._folder}/{file}")
        }


def open_tiles(files: Files, folder: str, refs: Sequence[RunRef], reads: RunReads) -> RunTiles:
    """The tiles of a manifest."""
    runs = [(place, list(of)) for place, of in groupby(refs, lambda ref: (ref.prefix, ref.depth))]
    places = [place for place, _ in runs]
    if len(set(places)) < len(places):
        raise StoreCorrupt(f"{folder}: a tile of the index is there twice", folder=folder)
    known = dict(runs)
    covering = list(_cover(0, 0, sorted(places, key=_first_hash)))
    if len(known.keys() - set(covering)):
        raise StoreCorrupt(f"{folder}: tiles of the index overlap", folder=folder)
    return RunTiles(
        [(place, [open_run(files, folder, ref) for ref in known.get(place, ())]) for place in covering], reads
    )


def _cover(prefix: int, depth: int, places: Sequence[Place]) -> Iterator[Place]:
    """These places, and others without runs where there are none of them."""
    if not places or (prefix, depth) in places or depth >= 64:
        yield prefix, depth
        return
    middle = (2 * prefix + 1) << (63 - depth)
    for half, part in (
        (2 * prefix, [one for one in places if _first_hash(one) < middle]),
        (2 * prefix + 1, [one for one in places if _first_hash(one) >= middle]),
    ):
        yield from _cover(half, depth + 1, part)


def _first_hash(place: Place) -> int:
    prefix, depth = place
    return prefix << (64 - depth)


def _range(prefix: int, depth: int) -> Hashes:
    """The first hash of a tile, and of the next one (0 after the last)."""
    return np.array(
        [_first_hash((prefix, depth)), _first_hash((prefix + 1, depth)) & (1 << 64) - 1], np.uint64
    )


def _joined(parts: Sequence[Entries]) -> tuple[Hashes, Int64s]:
    """Parts that follow each other."""
    if not parts:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    hashes, versions = (np.concatenate(one) for one in zip(*parts, strict=True))
    return hashes, versions
