"""The port to the metadata: read a snapshot, commit with requirements, follow changes by deltas.

Invariants, for every implementation (``tests/contracts/metadata_contract.py``):

    1. A commit happens whole or not at all, and is durable when it returns.
    2. The store's version grows with every commit that has updates and every announcement that comes or goes. It never
       goes back.
    3. An entry's version is the store's version at which it was last put: equal versions, equal values.
    4. A snapshot is consistent: it never shows half of a commit, and never changes afterwards.
    5. A snapshot plus the delta since it equals the snapshot that would be read now.
    6. Following by deltas costs what was changed, not the size of the store.

    7. An announcement stands until it is closed, its store is closed, or somebody announces the same key. Where the
       store can tell, it also ends with the process.

All calls are synchronous and may come from any thread. A commit waits for the disk or for other machines, and so may
``read`` and ``announce``: never call them on an event loop.

A store on several machines learns of the commits of others a little later (``watch`` reports it). ``read`` shows every
commit that returned before it was called, and so does ``changes_since`` after a ``Conflict``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
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
    entries: Mapping[str, Entry] | None = field(default=None, compare=False, repr=False)
    """All entries at ``version``, from a store that has them at hand: who keeps them too shares them then."""


class Announcement:
    """An entry that stands as long as whoever announced it. A context: leaving it ends the announcement."""

    def __init__(self, key: str, *, end: Callable[[], None], stands: Callable[[], bool]) -> None:
        self.key = key
        self._end = end
        self._stands = stands

    @property
    def stands(self) -> bool:
        """Whether the entry is there, as far as this process knows."""
        return self._stands()

    def close(self) -> None:
        """Take it back. Closing twice is fine, and so is closing after somebody else announced the key."""
        self._end()

    def __enter__(self) -> Announcement:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


Watcher = Callable[[int], None]
"""Called with the store's new version, on the thread that noticed it. Keep it short, and never commit in it."""


class MetadataStore(Protocol):
    """Small values under keys, changed by commits."""

    hears: bool
    """Whether it learns of the commits of others by itself, and tells its watchers; else somebody must look."""

    def read(self, prefix: str = "") -> Snapshot:
        """Every entry whose key starts with ``prefix``."""

    def commit(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> int:
        """Apply all updates if all requirements hold, else raise ``Conflict``. Return the new version.

        ``OutcomeUnknown``: it cannot be known whether they were applied; a store on one machine always knows.
        """

    def announce(self, key: str, value: bytes) -> Announcement:
        """Put an entry below ``alive/`` that stands as long as this process, in the place of an earlier one."""

    def changed_since(self, version: int) -> bool:
        """Whether this object knows of a version after ``version``, also of another process. Costs microseconds."""

    def changes_since(self, version: int) -> Delta | None:
        """What changed since a version that was read here; None if that is too long ago: then read again."""

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Call back whenever this object learns of a new version.

        It does so at its own commits, in ``changed_since`` and ``read``, and when the store hears of other commits.

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
