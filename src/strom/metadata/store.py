"""The port to the metadata: read a snapshot, commit with requirements, follow changes by deltas.

Invariants, for every implementation (``tests/contracts/metadata_contract.py``):

    1. A commit happens whole or not at all, and is durable when it returns.
    2. The store's version grows by one with every commit that has updates, and never goes back.
    3. An entry's version is the store's version at which it was last put: equal versions, equal values.
    4. A snapshot is consistent: it never shows half of a commit, and never changes afterwards.
    5. A snapshot plus the delta since it equals the snapshot that would be read now.
    6. Following by deltas costs what was changed, not the size of the store.

All calls are synchronous and may come from any thread. A commit waits for the disk, so never call it on an event loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from strom.metadata.changes import Requirement, Update


class Entry(NamedTuple):
    """One value, and the version of the store at which it was put."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All entries under a prefix at one version."""

    version: int
    entries: Mapping[str, Entry]


@dataclass(frozen=True, slots=True)
class Delta:
    """The difference between two versions: the entries that were put, and the keys that were deleted."""

    since: int
    version: int
    put: Mapping[str, Entry]
    gone: Sequence[str]


Watcher = Callable[[int], None]
"""Called with the store's new version, on the thread that noticed it. Keep it short, and never commit in it."""


class MetadataStore(Protocol):
    """Small values under keys, changed by commits."""

    def read(self, prefix: str = "") -> Snapshot:
        """Every entry whose key starts with ``prefix``."""

    def commit(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> int:
        """Apply all updates if all requirements hold, else raise ``Conflict``. Return the new version."""

    def changed_since(self, version: int) -> bool:
        """Whether the store is past ``version``, also because of another process. Costs microseconds."""

    def changes_since(self, version: int) -> Delta | None:
        """What changed since a version that was read here; None if that is too long ago: then read again."""

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Call back whenever this object learns of a new version (own commits, ``changed_since``, ``read``).

        Return the function that ends the watch.
        """

    def close(self) -> None:
        """Release everything. Closing twice is fine; any other call afterwards raises ``Closed``."""


class Watchers:
    """The callbacks of one store, called once per new version."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[int, Watcher] = {}
        self._next = 0
        self._told = -1

    def add(self, callback: Watcher) -> Callable[[], None]:
        """Add a callback; return the function that removes it."""
        with self._lock:
            number = self._next
            self._next += 1
            self._callbacks[number] = callback

        def forget() -> None:
            self._callbacks.pop(number, None)

        return forget

    def tell(self, version: int) -> None:
        """Call everybody back, once per version."""
        with self._lock:
            if version <= self._told:
                return
            self._told = version
        for callback in list(self._callbacks.values()):
            callback(version)
