"""Which moves may begin, so that no server makes many copies at once.

A move is held back by the servers that get a copy, and by nothing else: while one of them has its hands full, or is
away, moves to others go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from strom.model.bucket import BucketId
from strom.replication.bucket_entry import BucketEntry


class CopiesToMake(NamedTuple):
    """A bucket, and the servers that shall get a copy of it."""

    bucket: BucketId
    targets: tuple[int, ...]


def begin_next(
    under_way: Iterable[CopiesToMake], waiting: Iterable[CopiesToMake], at_once: int
) -> list[BucketId]:
    """The waiting moves that may begin, in order: no server makes more than ``at_once`` copies then.

    A move that makes no copy (it removes some, or changes the leader) may always begin.
    """
    making = Counter(target for move in under_way for target in move.targets)
    begun = []
    for move in waiting:
        if all(making[target] < at_once for target in move.targets):
            making.update(move.targets)
            begun.append(move.bucket)
    return begun


def copies_lacking(entry: BucketEntry) -> tuple[int, ...]:
    """The servers that are wanted and have no copy yet: a move with some of them has not begun."""
    return tuple(one for one in entry.wanted if one not in entry.servers)


def copies_being_made(entry: BucketEntry) -> tuple[int, ...]:
    """The servers of a bucket on the move that have a copy, and not yet all of it."""
    if not entry.moving:
        return ()
    return tuple(one for one in entry.wanted if one in entry.servers and entry.member_of(one) is None)
