"""Opening a store from the files that the manifest names; the caller then replays the log above its offset.

The manifest's files are verified by their checksums (rows of base files when they are first read). Files that it does
not name are left over from a crash and are removed. Live bits and lists are derived here, never stored.

    restore(…)   the state at L, without the rows in [C, L), which only the log has
    KeyStore.restore_rows for each batch of the log in [C, L)
    settle(…)    live bits and lists, now that all rows are loaded
    KeyStore.publish for each batch of the log from L on
"""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np

from strom.errors import StoreCorrupt
from strom.kv.definition import KeyDefinition
from strom.kv.index.index import KeyIndex
from strom.kv.index.index_budget import IndexBudget
from strom.kv.index.secondary_index import SecondaryIndex
from strom.kv.index.series import Series
from strom.kv.list_builder import build_list
from strom.kv.rows.base_file import BaseFile
from strom.kv.rows.rows import Rows
from strom.kv.runs.run_reads import RunReads
from strom.kv.runs.run_tiles import RunTiles
from strom.kv.snapshot.manifest import MANIFEST_NAME, Manifest
from strom.kv.snapshot.stored_runs import open_tiles
from strom.kv.snapshot.stored_shards import read_series, read_shard
from strom.kv.store import KeyStore
from strom.kv.versions import are_images, offsets_of
from strom.runtime.files import Files


def restore(
    files: Files,
    folder: str,
    definition: KeyDefinition,
    lock: AbstractContextManager[object],
    manifest: Manifest | None,
    budget: IndexBudget | None = None,
) -> KeyStore:
    """The store as the manifest has it; an empty one without a manifest. ``budget``: of the memory for indexes."""
    reads = RunReads() if budget is None else budget.reads
    remove_unnamed(files, folder, manifest)
    if manifest is None:
        rows = Rows(files, definition.schema)
        store = KeyStore(
            definition, lock, rows=rows, index=KeyIndex(), series=Series(), published=0, reads=reads
        )
    else:
        base = [BaseFile.open(files, f"{folder}/{name}") for name in manifest.base]
        carried = base[-1].end if base else 0
        if carried != manifest.carried:
            raise StoreCorrupt(
                f"{folder}: the base files end at {carried}, the manifest says {manifest.carried}",
                folder=folder,
            )
        index = _index(files, folder, manifest, reads)
        series = Series(manifest.series_start)
        rows = Rows(files, definition.schema, base_files=base, carried=manifest.carried)
        store = KeyStore(
            definition, lock, rows=rows, index=index, series=series, published=manifest.offset, reads=reads
        )
        _load_series(files, folder, series, manifest)
    for name, columns in definition.lists.items():
        store.lists[name] = SecondaryIndex(name, store.kinds, columns)
    resident = store.index.resident
    if resident is not None and (budget is None or store.lists or budget.takes_back(resident.tiles.entries)):
        store.bring_all_in()  # lists need row ids that stay
    if budget is not None:
        budget.attend(store.index, movable=not store.lists)
    return store


def _index(files: Files, folder: str, manifest: Manifest, reads: RunReads) -> KeyIndex:
    if manifest.in_runs:
        index = KeyIndex()
        index.lie_in(open_tiles(files, folder, manifest.runs, reads), manifest.offset)
        return index
    return KeyIndex.load(
        [(ref.prefix, ref.depth, ref.entries) for ref in manifest.shards],
        # One at a time, so that the memory of one serves the next and the index is never in memory twice.
        (read_shard(files, f"{folder}/{ref.file}", ref) for ref in manifest.shards),
    )


def _load_series(files: Files, folder: str, series: Series, manifest: Manifest) -> None:
    nothing = np.zeros(0, np.int64)
    for ref in manifest.series:
        cells = read_series(files, folder, ref)
        low = max(ref.low, manifest.series_start)
        series.append(low, ref.high - low, nothing, nothing)
        series.map(low, ref.high, cells[low - ref.low :])


def remove_unnamed(files: Files, folder: str, manifest: Manifest | None) -> None:
    """Remove files that no manifest names: left by a snapshot or a merge that a crash interrupted."""
    named = set() if manifest is None else manifest.files()
    for name in files.list(folder):
        if name != MANIFEST_NAME and name not in named:
            files.remove(f"{folder}/{name}")


def settle(store: KeyStore) -> None:
    """Derive the live bits and lists of a restored store, once all its rows are loaded."""
    resident = store.index.resident
    if resident is None:
        store.rows.set_live_newest(store.index.tables)
    else:
        resident.keys = _settle_tiles(store, resident.tiles)
    for one in store.lists.values():
        build_list(store, one)
        one.ready_at = store.published


def _settle_tiles(store: KeyStore, tiles: RunTiles) -> int:
    """Make the newest images of runs live; returns the number of keys."""
    keys = 0
    for number in range(len(tiles.tiles)):
        _, versions = tiles.merged_tile(number)
        keys += len(versions)
        offsets = offsets_of(versions[are_images(versions)])
        offsets.sort()  # rows that lie side by side
        store.rows.set_live(offsets)
    return keys
