"""All entries in memory, as of one commit, with what a commit needs to name them exactly.

The store moves it under its lock, one thread at a time. ``state`` is an immutable value that any thread may read.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strom.errors import MetadataCorrupt
from strom.metadata.deltas import Known, RecentDeltas
from strom.metadata.sharing_map import SharingMap
from strom.metadata.store import Delta, Entry
from strom.metadata.zookeeper.feed import Announced, FeedChange, FeedPosition
from strom.metadata.zookeeper.operations import Node
from strom.metadata.zookeeper.znodes import Deed, unpacked


@dataclass(frozen=True, slots=True)
class MirrorState:
    """Everything that is known, as of one position in the feed."""

    position: FeedPosition
    known: Known
    node_versions: SharingMap[str, int]
    """Of every key that is no announcement, the version of its node."""
    deletions: int
    """The version of the node that counts commits that delete."""
    announced: Mapping[str, Announced]


class EntryMirror:
    """The entries and announcements that this process knows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent = RecentDeltas()
        self.state = MirrorState(FeedPosition(0, 0, 0), self._recent.known, SharingMap(), 0, {})

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
        put: dict[str, Entry] = {}
        gone: dict[str, None] = {}
        versions: dict[str, int] = {}
        deletions = state.deletions
        for change in changes:
            for one in change.changes:
                if one.deed is Deed.REMOVED:
                    put.pop(one.key, None)
                    versions.pop(one.key, None)
                    gone[one.key] = None
                    continue
                before = versions.get(one.key, state.node_versions.get(one.key, -1))
                assert before is not None
                versions[one.key] = 0 if one.deed is Deed.CREATED else before + 1
                put[one.key] = Entry(one.value, change.version)
                gone.pop(one.key, None)
            deletions += change.removes
        node_versions = state.node_versions.changed(versions, gone)
        if announced is None:
            announced = state.announced
        else:
            put |= {
                key: Entry(one.value, one.created)
                for key, one in announced.items()
                if state.announced.get(key) != one
            }
            gone |= dict.fromkeys(key for key in state.announced if key not in announced)
        there = tuple(key for key in gone if key in state.known.entries)
        with self._lock:
            self._recent.advance(Delta(state.known.version, position.version, put, there))
            self.state = MirrorState(position, self._recent.known, node_versions, deletions, announced)

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
        entries = {key: entry for key, (entry, _) in collection.nodes.items()}
        entries |= {key: Entry(one.value, one.created) for key, one in announced.items()}
        node_versions = SharingMap.of({key: number for key, (_, number) in collection.nodes.items()})
        put = {key: entry for key, entry in entries.items() if known.entries.get(key) != entry}
        gone = tuple(key for key in known.entries if key not in entries)
        with self._lock:
            if known.version == 0:
                self._recent.start_over(position.version, entries)
            elif position.version > known.version:
                self._recent.advance(Delta(known.version, position.version, put, gone))
            self.state = MirrorState(position, self._recent.known, node_versions, deletions, announced)


class EntryCollection:
    """Entries that are read node by node while commits go on, each brought up to date by the changes since then."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[Entry, int]] = {}

    def add(self, key: str, path: str, node: Node | None) -> None:
        """A node that was read; None if it was gone."""
        if node is not None:
            entry = Entry(unpacked(node.value, path), node.facts.modified)
            self.nodes[key] = (entry, node.facts.version)

    def apply(self, changes: Sequence[FeedChange]) -> None:
        """Bring what was read up to date. Nodes that were read later than a change have it already."""
        for change in changes:
            for one in change.changes:
                entry, number = self.nodes.get(one.key, (None, -1))
                if entry is not None and entry.version >= change.version:
                    continue
                if one.deed is Deed.REMOVED:
                    self.nodes.pop(one.key, None)
                else:
                    count = 0 if one.deed is Deed.CREATED else number + 1
                    self.nodes[one.key] = (Entry(one.value, change.version), count)
