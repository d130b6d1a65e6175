"""Manifests and manifest lists, cached by path: they never change, and a snapshot shares most with its parent."""

from __future__ import annotations

import threading
from collections import OrderedDict

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table.snapshots import Snapshot

ENTRIES_MAX = 200_000
LISTS_MAX = 256


class ManifestCache:
    """The live entries of recently read manifests. Thread-safe."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._kept: OrderedDict[str, list[ManifestEntry]] = OrderedDict()
        self._lists: OrderedDict[str, list[ManifestFile]] = OrderedDict()
        self._count = 0
        self._lock = threading.Lock()
        self.read = 0
        """Manifests that were read from the storage."""

    def manifests(self, snapshot: Snapshot, io: FileIO) -> list[ManifestFile]:
        """The manifests that a snapshot lists."""
        path = snapshot.manifest_list
        with self._lock:
            found = self._lists.get(path)
            if found is not None:
                self._lists.move_to_end(path)
                return list(found)
        found = snapshot.manifests(io)
        with self._lock:
            self._lists[path] = found
            while len(self._lists) > LISTS_MAX:
                self._lists.popitem(last=False)
        return list(found)

    def entries(self, manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
        """The entries of a manifest that are not deletions, with what they inherit from the list."""
        path = manifest.manifest_path
        with self._lock:
            found = self._kept.get(path)
            if found is not None:
                self._kept.move_to_end(path)
                return found
        found = manifest.fetch_manifest_entry(io, discard_deleted=True)
        with self._lock:
            self.read += 1
            self._keep(path, found)
        return found

    def remember(self, path: str, entries: list[ManifestEntry]) -> None:
        """The live entries of a manifest that was just written."""
        with self._lock:
            self._keep(path, entries)

    def _keep(self, path: str, entries: list[ManifestEntry]) -> None:
        if self._kept.setdefault(path, entries) is not entries:
            return
        self._count += len(entries)
        while self._count > self._entries_max and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._count -= len(dropped)
