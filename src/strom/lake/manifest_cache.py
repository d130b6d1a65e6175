"""What manifests say, kept by path: a manifest never changes, and most of a snapshot's are the parent's."""

from __future__ import annotations

import threading
from collections import OrderedDict

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile

ENTRIES_MAX = 200_000


class ManifestCache:
    """The live entries of the manifests read last; threads may share it."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._kept: OrderedDict[str, list[ManifestEntry]] = OrderedDict()
        self._count = 0
        self._lock = threading.Lock()
        self.read = 0
        """Manifests that were read from the storage."""

    def entries(self, manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
        """The manifest's entries that are not deletions, with what they inherit from the list."""
        path = manifest.manifest_path
        with self._lock:
            found = self._kept.get(path)
            if found is not None:
                self._kept.move_to_end(path)
                return found
        found = manifest.fetch_manifest_entry(io, discard_deleted=True)
        with self._lock:
            self._keep(path, found)
        return found

    def _keep(self, path: str, entries: list[ManifestEntry]) -> None:
        self.read += 1
        if self._kept.setdefault(path, entries) is not entries:
            return
        self._count += len(entries)
        while self._count > self._entries_max and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._count -= len(dropped)
