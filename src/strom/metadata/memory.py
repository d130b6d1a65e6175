"""The metadata in memory: for tests and simulations, and as the simplest description of a store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from strom.errors import Closed
from strom.metadata.changes import (
    Delete,
    Put,
    Requirement,
    Update,
    check_announced,
    check_commit,
    check_requirements,
)
from strom.metadata.deltas import RecentDeltas, delta_of
from strom.metadata.store import Announcement, Delta, Snapshot, Watcher, Watchers


class _Shared:
    """What all views of one store share."""

    def __init__(self) -> None:
        self.recent = RecentDeltas()
        self.lock = threading.Lock()
        self.watchers = Watchers()


class MemoryStore:
    """A map with versions. Several servers of one process may share it, or have a view each (``another``)."""

    hears = True

    def __init__(self, shared: _Shared | None = None) -> None:
        """Without arguments: a new store."""
        self._shared = shared or _Shared()
        self._announced: dict[str, int] = {}
        """Of every key announced here, the version of its entry."""
        self._closed = False

    def another(self) -> MemoryStore:
        """The same store as another process sees it: closed by itself, with announcements of its own."""
        return MemoryStore(self._shared)

    def read(self, prefix: str = "") -> Snapshot:
        self._check_open()
        known = self._shared.recent.known
        return Snapshot(known.version, known.entries.below(prefix))

    def commit(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> int:
        check_commit(requirements, updates)
        with self._shared.lock:
            self._check_open()
            entries = self._shared.recent.known.entries
            required = {requirement.key for requirement in requirements}
            found = {key: entries[key].version for key in required if key in entries}
            check_requirements(requirements, found)
            version = self._apply(updates)
        self._shared.watchers.tell(version)
        return version

    def announce(self, key: str, value: bytes) -> Announcement:
        check_announced(key)
        with self._shared.lock:
            self._check_open()
            own = self._announced[key] = self._apply([Put(key, value)])
        self._shared.watchers.tell(own)
        return Announcement(
            key, end=lambda: self._end(key, own), stands=lambda: not self._closed and self._is_there(key, own)
        )

    def _is_there(self, key: str, version: int) -> bool:
        found = self._shared.recent.known.entries.get(key)
        return found is not None and found.version == version

    def _end(self, key: str, version: int) -> None:
        with self._shared.lock:
            if not self._is_there(key, version):
                return
            ended = self._apply([Delete(key)])
        self._shared.watchers.tell(ended)

    def changed_since(self, version: int) -> bool:
        self._check_open()
        return self._shared.recent.known.version != version

    def changes_since(self, version: int) -> Delta | None:
        with self._shared.lock:
            self._check_open()
            return self._shared.recent.since(version)

    def watch(self, callback: Watcher) -> Callable[[], None]:
        return self._shared.watchers.add(callback)

    def close(self) -> None:
        self._closed = True
        for key, version in self._announced.items():
            self._end(key, version)

    def _apply(self, updates: Sequence[Update]) -> int:
        recent = self._shared.recent
        if updates:
            recent.advance(delta_of(recent.known.version + 1, updates, recent.known.entries))
        return recent.known.version

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this metadata store was closed")
