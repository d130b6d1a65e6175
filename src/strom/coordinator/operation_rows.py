"""What people want of a cluster, as the metadata keep it: tags of servers, the last rebalance, and losses declared.

A rebalance is a record and its moves, some hundred to an entry, under an id of their own. Moves never change; how far
each one is follows from the bucket's entry. So whichever coordinator is active goes on with them. The format is in
docs/formats/metadata.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

from strom.coordinator import keys
from strom.coordinator.entries import id_in
from strom.coordinator.touched import Changed, bucket_in
from strom.errors import MetadataCorrupt
from strom.model.bucket import BucketId
from strom.model.document import Document, canonical

Tag = Literal["leaving", "resting"]
"""A server that leaves gives all its copies away and gets none; one that rests is preferred as a leader by none."""
RebalanceState = Literal["running", "cancelling", "cancelled", "done"]

NUMBER_MAX = 2**63 - 1
LOSSES_KEPT_MAX = 10
"""Of one bucket, the newest."""


class PlannedMove(NamedTuple):
    """A bucket of a rebalance: who led it, and who shall have its copies before and after, preferred leaders first."""

    bucket: BucketId
    leader: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    bytes: int
    """To be copied, as far as it was known."""


@dataclass(frozen=True, slots=True)
class RebalanceRecord:
    """The newest rebalance; an older one is forgotten when it begins."""

    rebalance_id: str
    state: RebalanceState
    started_ms: int
    pieces: int
    """Entries that hold its moves."""
    moves: int
    leaving: tuple[int, ...] = ()
    """Servers it empties: it is done when they have no copies."""
    ended_ms: int = 0

    @property
    def under_way(self) -> bool:
        """Whether there is still something to do."""
        return self.state in ("running", "cancelling")


class DeclaredLoss(NamedTuple):
    """A leader that was elected though acknowledged rows may be gone with it (R10)."""

    time_ms: int
    epoch: int
    """Of the new leader."""
    leader: int
    end: int
    """Where its log ended: what was acknowledged beyond is lost."""
    missing: tuple[int, ...]
    """Members of the in-sync set that did not answer, or had lost their copies: they may have had more."""
    by: str
    """Who decided: a user, or nobody where the rules did."""


class OperationRows:
    """All entries under ``operations/``. Immutable."""

    __slots__ = ("_losses", "_moves", "rebalance", "tags")

    def __init__(self) -> None:
        """None at all; use ``changed``."""
        self.tags: Mapping[int, Tag] = {}
        self.rebalance: RebalanceRecord | None = None
        self._moves: Mapping[str, bytes] = {}
        self._losses: Mapping[str, bytes] = {}

    def changed(self, changed: Changed) -> OperationRows:
        """The rows after a change of the metadata."""
        found = OperationRows()
        tags, moves, losses = dict(self.tags), dict(self._moves), dict(self._losses)
        found.rebalance = self.rebalance
        for key in (*changed.gone, *changed.put):
            value = changed.put.get(key)
            kind = key.split("/")[1]
            if kind == "rebalance":
                found.rebalance = None if value is None else _decode_record(key, value)
            elif kind == "tags":
                _put(tags, id_in(key, 2), None if value is None else _decode_tag(key, value))
            else:
                _put(moves if kind == "moves" else losses, key, value)
        found.tags, found._moves, found._losses = tags, moves, losses
        return found

    @property
    def leaving(self) -> frozenset[int]:
        """The servers that are to give all their copies away."""
        return frozenset(one for one, tag in self.tags.items() if tag == "leaving")

    @property
    def resting(self) -> frozenset[int]:
        """The servers that nobody shall prefer as leaders."""
        return frozenset(one for one, tag in self.tags.items() if tag == "resting")

    def moves(self) -> Sequence[PlannedMove]:
        """The moves of the newest rebalance, in order."""
        record = self.rebalance
        if record is None:
            return ()
        pieces = [keys.moves(record.rebalance_id, number) for number in range(record.pieces)]
        return [move for key in pieces for move in decode_moves(key, self._moves.get(key, b"[]"))]

    def move_keys(self) -> list[str]:
        """The entries of moves, also of rebalances that never began or are over."""
        return sorted(self._moves)

    def losses_of(self, bucket: BucketId) -> list[DeclaredLoss]:
        """The losses that were declared of a bucket, oldest first."""
        key = keys.losses(bucket)
        value = self._losses.get(key)
        return [] if value is None else decode_losses(key, value)

    def buckets_with_losses(self) -> list[BucketId]:
        """The buckets of which losses were declared, some of them perhaps dropped since."""
        return [bucket_in(key.removeprefix("operations/")) for key in sorted(self._losses)]


def _put(where: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        where.pop(key, None)
    else:
        where[key] = value


# --- formats -----------------------------------------------------------------------------------------------------


def encode_tag(tag: Tag) -> bytes:
    """The value under ``operations/tags/``."""
    return canonical({"tag": tag}).encode()


def _decode_tag(key: str, value: bytes) -> Tag:
    doc = Document.parse(value, key, MetadataCorrupt)
    found: Any = doc.text("tag")
    if found not in get_args(Tag):
        doc.refuse("tag", f"must be one of {', '.join(get_args(Tag))}")
    return found  # type: ignore[no-any-return]


def encode_record(record: RebalanceRecord) -> bytes:
    """The value under ``operations/rebalance``."""
    return canonical(
        {
            "id": record.rebalance_id,
            "state": record.state,
            "started": record.started_ms,
            "ended": record.ended_ms,
            "pieces": record.pieces,
            "moves": record.moves,
            "leaving": list(record.leaving),
        }
    ).encode()


def _decode_record(key: str, value: bytes) -> RebalanceRecord:
    doc = Document.parse(value, key, MetadataCorrupt)
    state: Any = doc.text("state")
    if state not in get_args(RebalanceState):
        doc.refuse("state", f"must be one of {', '.join(get_args(RebalanceState))}")
    return RebalanceRecord(
        rebalance_id=doc.text("id"),
        state=state,
        started_ms=doc.integer("started", low=0, high=NUMBER_MAX),
        pieces=doc.integer("pieces", low=0),
        moves=doc.integer("moves", low=0),
        leaving=_numbers(key, doc.raw("leaving")),
        ended_ms=doc.integer("ended", low=0, high=NUMBER_MAX),
    )


def encode_moves(moves: Sequence[PlannedMove]) -> bytes:
    """The value of some moves under ``operations/moves/``."""
    return canonical(
        [[*one.bucket, one.leader, list(one.before), list(one.after), one.bytes] for one in moves]
    ).encode()


@lru_cache(maxsize=64)
def decode_moves(key: str, value: bytes) -> tuple[PlannedMove, ...]:
    """Decode some moves."""
    try:
        return tuple(
            PlannedMove(BucketId(table, partition, bucket), leader, tuple(before), tuple(after), size)
            for table, partition, bucket, leader, before, after, size in json.loads(value)
        )
    except (ValueError, TypeError) as error:
        raise MetadataCorrupt(f"{key} does not hold moves: {error!r}", key=key) from error


def encode_losses(losses: Sequence[DeclaredLoss]) -> bytes:
    """The value under ``operations/losses/``: the newest ones."""
    return canonical([[*one[:4], list(one.missing), one.by] for one in losses[-LOSSES_KEPT_MAX:]]).encode()


def decode_losses(key: str, value: bytes) -> list[DeclaredLoss]:
    """Decode the losses of a bucket."""
    try:
        return [
            DeclaredLoss(time_ms, epoch, leader, end, tuple(missing), by)
            for time_ms, epoch, leader, end, missing, by in json.loads(value)
        ]
    except (ValueError, TypeError) as error:
        raise MetadataCorrupt(f"{key} does not hold losses: {error!r}", key=key) from error


def _numbers(key: str, found: object) -> tuple[int, ...]:
    if not isinstance(found, list) or not all(type(one) is int for one in found):
        raise MetadataCorrupt(f"{key} must list server ids", key=key)
    return tuple(found)
