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
from strom.kv.index.secondary_index import SecondaryIndex
from strom.kv.index.series import Series
from strom.kv.list_builder import build_list
from strom.kv.rows.base_file import BaseFile
from strom.kv.rows.rows import Rows
from strom.kv.snapshot.manifest import MANIFEST_NAME, Manifest
from strom.kv.snapshot.stored_shards import read_series, read_shard
from strom.kv.store import KeyStore
from strom.runtime.files import Files


def restore(
    files: Files,
    folder: str,
    definition: KeyDefinition,
    lock: AbstractContextManager[object],
    manifest: Manifest | None,
) -> KeyStore:
    """The store as the manifest has it; an empty one without a manifest."""
    remove_unnamed(files, folder, manifest)
    if manifest is None:
        rows = Rows(files, definition.schema)
        store = KeyStore(definition, lock, rows=rows, index=KeyIndex(), series=Series(), published=0)
    else:
        base = [BaseFile.open(files, f"{folder}/{name}") for name in manifest.base]
        carried = base[-1].end if base else 0
        if carried != manifest.carried:
            raise StoreCorrupt(
                f"{folder}: the base files end at {carried}, the manifest says {manifest.carried}",
                folder=folder,
            )
        index = KeyIndex.load(
            [(ref.prefix, ref.depth, ref.entries) for ref in manifest.shards],
            # One at a time, so that the memory of one serves the next and the index is never in memory twice.
            (read_shard(files, f"{folder}/{ref.file}", ref) for ref in manifest.shards),
        )
        series = Series(manifest.series_start)
        rows = Rows(files, definition.schema, base_files=base, carried=manifest.carried)
        store = KeyStore(definition, lock, rows=rows, index=index, series=series, published=manifest.offset)
        _load_series(files, folder, series, manifest)
    for name, columns in definition.lists.items():
        store.lists[name] = SecondaryIndex(name, store.kinds, columns)
    return store


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
    store.rows.set_live_newest(store.index.tables)
    for one in store.lists.values():
        build_list(store, one)
        one.ready_at = store.published
