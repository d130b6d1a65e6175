"""A snapshot: the store as of an offset L, written while writers go on, made valid by one new manifest.

The order: the log is durable up to L; index shards and the series up to L are written and synced; then the manifest.
Shards are copied one by one under the lock while writes go on, and stepped back to L by the series, so it does not
matter when each is copied. A shard that did not change since the last manifest stays in its older file.

A shard may split while others are copied. The snapshot is complete when, under the lock, every existing shard has been
written (or kept), or the shard it was split from has been. An index that lies in runs is written by ``stored_runs.py``.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from strom.kv.index.index import ShardEntries
from strom.kv.runs.run_layout import RunRef
from strom.kv.snapshot.manifest import (
    INDEX_PREFIX,
    MANIFEST_NAME,
    SERIES_PREFIX,
    EpochRef,
    Manifest,
    SeriesRef,
    ShardRef,
)
from strom.kv.snapshot.stored_runs import RunSnapshot
from strom.kv.snapshot.stored_shards import ShardFileWriter, write_series, write_shard
from strom.kv.store import KeyStore
from strom.runtime.files import Files

INDEX_FILES_MAX: Final = 8
"""With more files of shards, the shards of the least used files are rewritten."""

Place = tuple[int, int]


class SnapshotJob:
    """One snapshot in progress. ``write`` runs in any thread; nothing may be carried or reclaimed meanwhile."""

    def __init__(
        self,
        files: Files,
        folder: str,
        store: KeyStore,
        previous: Manifest | None,
        *,
        offset: int,
        horizon: int,
        series_start: int,
        epochs: tuple[EpochRef, ...],
        base: tuple[str, ...],
        in_runs: bool = False,
    ) -> None:
        """``in_runs``: write the index as runs, in which it lies from then on."""
        self._files = files
        self._folder = folder
        self._store = store
        self._previous = previous
        self._offset = offset
        self._horizon = horizon
        self._series_start = series_start
        self._epochs = epochs
        self._base = base
        self._carried = store.rows.carried
        self._number = 1 if previous is None else previous.number + 1
        self._written: dict[Place, ShardRef] = {}
        self._in_runs = in_runs
        self._runs: RunSnapshot | None = None
        self.manifest: Manifest | None = None
        self.doubtful = False
        """The disk failed while the manifest was being replaced: it may have the old one or the new one."""

    def write(self) -> Manifest:
        """Write the files, then the manifest. The log must be durable up to the offset already."""
        self._files.make_folder(self._folder)
        shards: tuple[ShardRef, ...] = () if self._in_runs else self._write_shards()
        runs: tuple[RunRef, ...] = self._write_runs() if self._in_runs else ()
        series = self._write_series()
        manifest = Manifest(
            number=self._number,
            offset=self._offset,
            carried=self._carried,
            horizon=self._horizon,
            series_start=self._series_start,
            base=self._base,
            shards=shards,
            series=series,
            epochs=self._epochs,
            runs=runs,
        )
        self._files.sync_folder(self._folder)
        try:
            self._files.write_whole(f"{self._folder}/{MANIFEST_NAME}", manifest.encode())
        except OSError:
            self.doubtful = True
            raise
        self.manifest = manifest
        return manifest

    def adopt(self) -> None:
        """The manifest is durable. In the lane."""
        if self._runs is not None:
            self._runs.adopt()

    def abandon(self) -> None:
        """It failed: mark the shards it took as dirty again. In the lane."""
        index = self._store.index
        with self._store.lock:
            if self._runs is not None:
                self._runs.abandon()
            for shard in range(index.shards):
                if index.place_of(shard) in self._written:
                    index.mark_dirty(shard)

    # --- the index -----------------------------------------------------------------------------------------

    def _write_runs(self) -> tuple[RunRef, ...]:
        self._runs = RunSnapshot(self._files, self._folder, self._store, self._offset, self._number)
        return self._runs.write().refs

    def _write_shards(self) -> tuple[ShardRef, ...]:
        known = self._kept()
        name = f"{INDEX_PREFIX}{self._offset:020d}-{self._number}"
        writer: ShardFileWriter | None = None
        while (todo := self._missing(known)) is not None:
            writer = writer or ShardFileWriter(self._files, f"{self._folder}/{name}")
            for shard in todo:
                entries = self._take(shard)
                ref = write_shard(writer, name, entries)
                known[entries.prefix, entries.depth] = self._written[entries.prefix, entries.depth] = ref
        if writer is not None:
            writer.close()
        index = self._store.index
        with self._store.lock:
            places = [index.place_of(shard) for shard in range(index.shards)]
        # Shards may have split since ``_missing`` looked: those were written whole, under their former prefix.
        return _tiling(places, known)

    def _kept(self) -> dict[Place, ShardRef]:
        """The shards that have not changed since the previous manifest."""
        if self._previous is None:
            return {}
        index = self._store.index
        with self._store.lock:
            dirty = {index.place_of(int(shard)) for shard in index.dirty_shards()}
            places = {index.place_of(shard) for shard in range(index.shards)}
        clean = {
            (ref.prefix, ref.depth): ref
            for ref in self._previous.shards
            if (ref.prefix, ref.depth) in places - dirty
        }
        used = Counter(ref.file for ref in clean.values())
        crowded = {file for file, _ in used.most_common()[INDEX_FILES_MAX - 1 :]}
        return {place: ref for place, ref in clean.items() if ref.file not in crowded}

    def _missing(self, known: dict[Place, ShardRef]) -> list[int] | None:
        """The shards that are not written yet; None when all are."""
        index = self._store.index
        with self._store.lock:
            found = [s for s in range(index.shards) if not _covered(index.place_of(s), known)]
        return found or None

    def _take(self, shard: int) -> ShardEntries:
        """A shard as of the offset, without keys that came later."""
        index, series = self._store.index, self._store.series
        with self._store.lock:
            entries = index.export_shard(shard)
            versions = series.snapshot().step_back(entries.versions, self._offset)
            there = versions >= 0
            if (versions != entries.versions).any():
                index.mark_dirty(shard)
        return ShardEntries(
            entries.prefix, entries.depth, entries.hashes[there], entries.row_ids[there], versions[there]
        )

    # --- the series ----------------------------------------------------------------------------------------

    def _write_series(self) -> tuple[SeriesRef, ...]:
        kept = () if self._previous is None else self._previous.series
        kept = tuple(ref for ref in kept if ref.high > self._series_start)
        low = kept[-1].high if kept else self._series_start
        if low >= self._offset:
            return kept
        with self._store.lock:
            cells = self._store.series.snapshot().export(low, self._offset)
        name = f"{SERIES_PREFIX}{low:020d}-{self._number}"
        return (*kept, write_series(self._files, self._folder, name, low, cells))


def _covered(place: Place, known: dict[Place, ShardRef]) -> bool:
    """Whether the shard, or one that it was split from, is written."""
    prefix, depth = place
    return any((prefix >> up, depth - up) in known for up in range(depth + 1))


def _tiling(places: list[Place], known: dict[Place, ShardRef]) -> tuple[ShardRef, ...]:
    """The written shards that cover the index as it is now, each hash once."""
    chosen: dict[Place, ShardRef] = {}
    for prefix, depth in places:
        whole = max(up for up in range(depth + 1) if (prefix >> up, depth - up) in known)
        place = prefix >> whole, depth - whole
        chosen[place] = known[place]
    return tuple(chosen[place] for place in sorted(chosen, key=lambda place: place[0] << (64 - place[1])))
