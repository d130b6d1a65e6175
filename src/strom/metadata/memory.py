"""The metadata in memory: for tests and simulations, and as the simplest description of a store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from strom.errors import Closed
from strom.metadata.changes import Requirement, Update, check_requirements, check_updates
from strom.metadata.deltas import RecentDeltas, delta_of
from strom.metadata.store import Delta, Snapshot, Watcher, Watchers


class MemoryStore:
    """A map with versions. Several servers of one process may share it."""

    def __init__(self) -> None:
        self._recent = RecentDeltas()
        self._lock = threading.Lock()
        self._watchers = Watchers()
        self._closed = False

    def read(self, prefix: str = "") -> Snapshot:
        with self._lock:
            self._check_open()
            known = self._recent.known
        if not prefix:
            return Snapshot(known.version, known.entries)
        found = {key: entry for key, entry in known.entries.items() if key.startswith(prefix)}
        return Snapshot(known.version, found)

    def commit(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> int:
        check_updates(updates)
        with self._lock:
            self._check_open()
            entries = self._recent.known.entries
            required = {requirement.key for requirement in requirements}
            found = {key: entries[key].version for key in required if key in entries}
            check_requirements(requirements, found)
            version = self._apply(updates)
        self._watchers.tell(version)
        return version

    def changed_since(self, version: int) -> bool:
        self._check_open()
        return self._recent.known.version != version

    def changes_since(self, version: int) -> Delta | None:
        with self._lock:
            self._check_open()
            return self._recent.since(version)

    def watch(self, callback: Watcher) -> Callable[[], None]:
        return self._watchers.add(callback)

    def close(self) -> None:
        self._closed = True

    def _apply(self, updates: Sequence[Update]) -> int:
        known = self._recent.known
        if updates:
            self._recent.advance(delta_of(known.version + 1, updates, known.entries))
        return self._recent.known.version

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this metadata store was closed")
