"""The metadata in memory: for tests, simulations, and as the plainest statement of what a store does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from strom.errors import Closed
from strom.metadata.changes import Put, Requirement, Update, check_requirements, check_updates
from strom.metadata.store import Entry, Snapshot, Watcher, Watchers


class MemoryStore:
    """A dict with versions. Several servers of one process may share it."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._version = 0
        self._lock = threading.Lock()
        self._watchers = Watchers()
        self._closed = False

    def read(self, prefix: str = "") -> Snapshot:
        with self._lock:
            self._check_open()
            found = {key: entry for key, entry in self._entries.items() if key.startswith(prefix)}
            return Snapshot(self._version, found)

    def commit(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> int:
        check_updates(updates)
        with self._lock:
            self._check_open()
            required = {requirement.key for requirement in requirements}
            found = {key: self._entries[key].version for key in required if key in self._entries}
            check_requirements(requirements, found)
            version = self._apply(updates)
        self._watchers.tell(version)
        return version

    def changed_since(self, version: int) -> bool:
        self._check_open()
        return self._version != version

    def watch(self, callback: Watcher) -> Callable[[], None]:
        return self._watchers.add(callback)

    def close(self) -> None:
        self._closed = True

    def _apply(self, updates: Sequence[Update]) -> int:
        if not updates:
            return self._version
        self._version += 1
        for update in updates:
            if isinstance(update, Put):
                self._entries[update.key] = Entry(update.value, self._version)
            else:
                self._entries.pop(update.key, None)
        return self._version

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this metadata store was closed")
