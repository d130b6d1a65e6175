"""Deltas between versions of a store, and a short history of them.

A reader that knows a version needs only what came after it. A store keeps the deltas of the last commits it made or
learned of; a reader that is further behind reads everything again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strom.metadata.changes import Put, Update
from strom.metadata.entry_map import EntryMap
from strom.metadata.packed_block import StoredEntry
from strom.metadata.store import Delta, Entry

KEPT_MAX = 256
"""Deltas that a store keeps; a process checks for changes many times a second."""


def delta_of(version: int, updates: Sequence[Update], entries: Mapping[str, Entry]) -> Delta:
    """The delta of the commit of this version, applied to these entries, which are those of the version before."""
    put = {update.key: Entry(update.value, version) for update in updates if isinstance(update, Put)}
    gone = [update.key for update in updates if not isinstance(update, Put) and update.key in entries]
    return Delta(version - 1, version, put, tuple(gone))


@dataclass(frozen=True, slots=True)
class Known:
    """All entries at a version."""

    version: int
    entries: EntryMap


class RecentDeltas:
    """All entries at the newest known version, and the deltas that led to it. Not thread-safe."""

    def __init__(self, version: int = 0, entries: Mapping[str, Entry] | None = None) -> None:
        self.known = Known(version, EntryMap.of(entries or {}))
        self._deltas: deque[Delta] = deque(maxlen=KEPT_MAX)

    def advance(self, delta: Delta, stored: Mapping[str, StoredEntry] | None = None) -> None:
        """Advance from the known version. ``stored``: what is put, where the store has nodes."""
        assert delta.since == self.known.version
        entries = self.known.entries
        entries = (
            entries.changed(delta.put, delta.gone) if stored is None else entries.stored(stored, delta.gone)
        )
        self.known = Known(delta.version, entries)
        self._deltas.append(delta)

    def replace(self, delta: Delta, entries: EntryMap) -> None:
        """Advance to entries that were read whole; ``delta`` says in what they differ."""
        assert delta.since == self.known.version
        self.known = Known(delta.version, entries)
        self._deltas.append(delta)

    def start_over(self, version: int, entries: Mapping[str, Entry]) -> None:
        """Restart from entries that were read whole, without deltas."""
        self.known = Known(version, EntryMap.of(entries))
        self._deltas.clear()

    def since(self, version: int) -> Delta | None:
        """What came after ``version``; None if that is no longer kept."""
        if version == self.known.version:
            return Delta(version, version, {}, (), self.known.entries)
        later = [one for one in self._deltas if one.version > version]
        if not later or later[0].since > version or version > self.known.version:
            return None
        put: dict[str, Entry] = {}
        gone: dict[str, None] = {}
        for one in later:
            for key in one.gone:
                put.pop(key, None)
                gone[key] = None
            for key, entry in one.put.items():
                put[key] = entry
                gone.pop(key, None)
        return Delta(version, self.known.version, put, tuple(gone), self.known.entries)
