"""The feed: every change in order, without a gap, or the statement that there is one.

Every commit sets the head, so the head's version counts commits, and its value names the newest change. A reader that
knows commit ``n`` and finds the head at ``m`` needs exactly ``m - n`` changes. One is named by the head itself; more
are found by listing ``changes``. If some of them are gone already, the reader has fallen behind and reads everything.

Announcements are the head's children. The facts of the head say in one answer which commit was the newest and when an
announcement last came or went, so both together are known as of one transaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from strom.metadata.zookeeper.operations import Node, NodeFacts
from strom.metadata.zookeeper.session import Deadline, ZooKeeperSession, vanished
from strom.metadata.zookeeper.znodes import (
    TOKEN_BYTES,
    ChangedEntry,
    Deed,
    NodePaths,
    decode_change,
    key_of,
    unpacked,
)

COUNT_MASK = (1 << 32) - 1
"""A node's version is a 32-bit number that wraps around."""

CHANGES_KEPT = 1_000
"""Changes that are kept for readers."""

PRUNE_EVERY = 100
"""Whoever makes the commit of a number that this divides removes the changes before those."""

_CUTS_MAX = 20
_SEEN_MAX = 4 * CHANGES_KEPT


class FellBehind(Exception):
    """Changes that this reader needs are gone: it has to read everything."""


class FeedPosition(NamedTuple):
    """How far a reader is."""

    number: int
    """The head's version: how many commits there were."""
    committed: int
    """The transaction of the newest commit."""
    announced: int
    """The transaction with which the last announcement came or went."""

    @property
    def version(self) -> int:
        """The store's version here."""
        return max(self.committed, self.announced)

    @classmethod
    def of(cls, head: NodeFacts) -> FeedPosition:
        """The position that a head is at."""
        return cls(head.version, head.modified, head.children_changed)

    def commits_to(self, later: FeedPosition) -> int:
        """How many commits lie between this position and a later one."""
        return (later.number - self.number) & COUNT_MASK


class Announced(NamedTuple):
    """An announcement that stands."""

    value: bytes
    created: int
    token: bytes
    session: int


@dataclass(frozen=True, slots=True)
class FeedChange:
    """One commit: its transaction and what it did."""

    version: int
    changes: tuple[ChangedEntry, ...]

    @property
    def removes(self) -> bool:
        """Whether it removed an entry."""
        return any(one.deed is Deed.REMOVED for one in self.changes)


@dataclass(frozen=True, slots=True)
class FeedNews:
    """Everything between two positions."""

    position: FeedPosition
    changes: list[FeedChange]
    announced: dict[str, Announced] | None
    """All announcements, if one came or went."""


class ChangeFeed:
    """A reader's place in the changes. For one thread at a time."""

    def __init__(self, session: ZooKeeperSession, paths: NodePaths) -> None:
        self._session = session
        self._paths = paths
        self._seen: set[str] = set()
        """Names of changes that need not be read (again)."""
        self._watching = 0
        """The connection on which the head's children are watched."""
        self.position = FeedPosition(0, 0, 0)

    def begin(self, deadline: Deadline) -> None:
        """Begin at the newest commit. What is read from now on shows everything up to there."""
        self._seen = set(self._names(deadline))
        head = self._head(deadline)
        self.position = FeedPosition(head.facts.version, head.facts.modified, 0)

    def follow(self, change: str, position: FeedPosition) -> None:
        """Step over a commit of our own, directly after this position."""
        self._seen.add(change)
        self.position = position

    def advance(self, deadline: Deadline) -> FeedNews:
        """Go to the newest commit; raise FellBehind where that is not possible."""
        for _ in range(_CUTS_MAX):
            news = self._advanced(deadline)
            if news is not None:
                self.position = news.position
                return news
        raise FellBehind

    def _advanced(self, deadline: Deadline) -> FeedNews | None:
        """The news up to one moment; None if announcements changed while they were read."""
        head = self._head(deadline)
        position, newest = FeedPosition.of(head.facts), head.value.decode("ascii", "replace")
        announced = None
        connection = self._session.connections
        if position.announced != self.position.announced or connection != self._watching:
            found = self._session.children(self._paths.head, deadline, watch=True)
            if found is None:
                raise vanished(self._paths.head)
            if found[1].modified != position.committed:
                newest = ""  # there was a commit in between: its name was not read
            self._watching = connection
            position = FeedPosition.of(found[1])
            announced = self._announced(found[0], position, deadline)
            if announced is None:
                return None
        return FeedNews(position, self._changes(position, newest, deadline), announced)

    def _changes(self, position: FeedPosition, newest: str, deadline: Deadline) -> list[FeedChange]:
        count = self.position.commits_to(position)
        if count == 0:
            return []
        if count == 1 and newest and len(self._seen) < _SEEN_MAX:
            names = [newest]
        else:
            listed = self._names(deadline)
            self._seen.intersection_update(listed)
            names = [name for name in listed if name not in self._seen]
        found: list[FeedChange] = []
        seen: list[str] = []
        paths = [self._paths.change(name) for name in names]
        for name, path, node in zip(names, paths, self._session.get_each(paths, deadline), strict=True):
            if node is None or node.facts.created > position.committed:
                continue
            seen.append(name)
            if node.facts.created > self.position.committed:
                found.append(FeedChange(node.facts.created, decode_change(node.value, path)))
        if len(found) != count:
            raise FellBehind
        self._seen.update(seen)
        return sorted(found, key=lambda one: one.version)

    def _announced(
        self, names: list[str], position: FeedPosition, deadline: Deadline
    ) -> dict[str, Announced] | None:
        found: dict[str, Announced] = {}
        paths = [f"{self._paths.head}/{name}" for name in names]
        for name, path, node in zip(names, paths, self._session.get_each(paths, deadline), strict=True):
            if node is None or node.facts.created > position.version:
                return None
            value = unpacked(node.value, path)
            found[key_of(name)] = Announced(
                value[TOKEN_BYTES:], node.facts.created, value[:TOKEN_BYTES], node.facts.owner
            )
        return found

    def prune(self, deadline: Deadline) -> None:
        """Remove the oldest changes. Names begin with their age, roughly; a reader that misses one reads everything."""
        names = sorted(self._names(deadline))
        self._session.remove_each([self._paths.change(name) for name in names[:-CHANGES_KEPT]], deadline)

    def _head(self, deadline: Deadline) -> Node:
        head = self._session.get(self._paths.head, deadline, watch=True)
        if head is None:
            raise vanished(self._paths.head)
        return head

    def _names(self, deadline: Deadline) -> list[str]:
        found = self._session.children(self._paths.changes, deadline)
        if found is None:
            raise vanished(self._paths.changes)
        return found[0]
