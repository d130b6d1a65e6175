"""All entries in memory, as of one commit, with what a commit needs to name them exactly.

The store moves it under its lock, one thread at a time. ``state`` is an immutable value that any thread may read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from strom.errors import MetadataCorrupt
from strom.metadata.deltas import Known, RecentDeltas
from strom.metadata.entry_map import EntryMap
from strom.metadata.packed_block import StoredEntry
from strom.metadata.store import Delta, Entry
from strom.metadata.zookeeper.feed import Announced, FeedChange, FeedPosition
from strom.metadata.zookeeper.znodes import Deed


@dataclass(frozen=True, slots=True)
class MirrorState:
    """Everything that is known, as of one position in the feed."""

    position: FeedPosition
    known: Known
    deletions: int
    """The version of the node that counts commits that delete."""
    announced: Mapping[str, Announced]

    def node_of(self, key: str) -> int:
        """The version of the node of a key that is known, and no announcement."""
        found = self.known.entries.node_of(key)
        assert found is not None
        return found


class EntryMirror:
    """The entries and announcements that this process knows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent = RecentDeltas()
        self.state = MirrorState(FeedPosition(0, 0, 0), self._recent.known, 0, {})

    @property
    def known(self) -> Known:
        """All entries."""
        return self.state.known

    def since(self, version: int) -> Delta | None:
        """What came after a version; None if that is too long ago."""
        with self._lock:
            return self._recent.since(version)

    def take(
        self, position: FeedPosition, changes: Sequence[FeedChange], announced: Mapping[str, Announced] | None
    ) -> None:
        """Take in everything up to a position; ``announced``: all announcements, if one came or went."""
        state = self.state
        if position == state.position:
            return
        put: dict[str, StoredEntry] = {}
        gone: dict[str, None] = {}
        deletions = state.deletions
        for change in changes:
            for one in change.changes:
                if one.deed is Deed.REMOVED:
                    put.pop(one.key, None)
                    gone[one.key] = None
                    continue
                node = 0
                if one.deed is not Deed.CREATED:
                    earlier = put.get(one.key)
                    before = state.known.entries.node_of(one.key) if earlier is None else earlier.node
                    node = 0 if before is None else before + 1
                put[one.key] = StoredEntry(one.value, change.version, node)
                gone.pop(one.key, None)
            deletions += change.removes
        if announced is None:
            announced = state.announced
        else:
            put |= {
                key: StoredEntry(one.value, one.created)
                for key, one in announced.items()
                if state.announced.get(key) != one
            }
            gone |= dict.fromkeys(key for key in state.announced if key not in announced)
        there = tuple(key for key in gone if key in state.known.entries)
        with self._lock:
            news = {key: one.entry for key, one in put.items()}
            self._recent.advance(Delta(state.known.version, position.version, news, there), put)
            self.state = MirrorState(position, self._recent.known, deletions, announced)

    def replace(
        self,
        position: FeedPosition,
        collection: EntryCollection,
        deletions: int,
        announced: Mapping[str, Announced],
    ) -> None:
        """Take what was read whole. Readers still get a delta: the difference to what was known."""
        known = self.state.known
        if position.version < known.version:
            raise MetadataCorrupt(
                f"ZooKeeper went back from version {known.version} to {position.version}: it was restored from an "
                f"older state. Restart every server of the cluster, so that nobody goes on from what is lost",
                reason="went back",
            )
        entries = collection.entries.changed(
            {key: Entry(one.value, one.created) for key, one in announced.items()}
        )
        delta = None
        if 0 < known.version < position.version:  # or else nobody has seen anything yet, or nothing is new
            put, gone = entries.newer_than(known.entries), tuple(entries.gone_since(known.entries))
            delta = Delta(known.version, position.version, put, gone)
        with self._lock:
            if delta is not None:
                self._recent.replace(delta, entries)
            elif known.version == 0:
                self._recent.start_over(position.version, entries)
            self.state = MirrorState(position, self._recent.known, deletions, announced)


class EntryCollection:
    """Entries that are read node by node while commits go on, each brought up to date by the changes since then."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        """``keys``: all that will be added, as far as is known. They are packed best ``in_order``."""
        self.entries = EntryMap.sized(keys)

    def add(self, found: Mapping[str, StoredEntry]) -> None:
        """Nodes that were read."""
        self.entries = self.entries.stored(found)

    def apply(self, changes: Sequence[FeedChange]) -> None:
        """Bring what was read up to date. Nodes that were read later than a change have it already."""
        for change in changes:
            put: dict[str, StoredEntry] = {}
            gone: list[str] = []
            for one in change.changes:
                version, node = self.entries.version_of(one.key), self.entries.node_of(one.key)
                if version is not None and version >= change.version:
                    continue
                if one.deed is Deed.REMOVED:
                    gone.append(one.key)
                else:
                    count = 0 if one.deed is Deed.CREATED or node is None else node + 1
                    put[one.key] = StoredEntry(one.value, change.version, count)
            self.entries = self.entries.stored(put, gone)
