"""What one round reads, decided from how far the lake is, where the buckets end and how large rows are. Pure.

A part is a range of offsets of one bucket and becomes one data file. In a log it is all records in [start, end). In a
primary-key bucket it is the images in that range that are live at ``at``; one part of each bucket also brings the
offsets below the bucket's old end that died since (``dead_from`` is that old end).

A round that would be too large is split: a log bucket stops earlier; of a primary-key table some buckets wait, because
the servers may no longer keep an earlier instant. Buckets that hold transactions are never split: those arrive whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

from strom.errors import LakeCorrupt
from strom.model.bucket import BucketId
from strom.model.lake.lake import Tiered

MB = 1024 * 1024
ROW_BYTES = 64
"""A guess, where the size of rows is unknown."""

Kind = Literal["log", "keys"]


class Ending(NamedTuple):
    """A bucket as it was cut for this round."""

    partition: str | None
    start: int
    """Where its log begins."""
    end: int
    epoch: int
    """The epoch of the record before the end."""


@dataclass(frozen=True)
class Bounds:
    """How large a round, a task and a file may be."""

    round_bytes: int = 4096 * MB
    task_bytes: int = 128 * MB
    task_bytes_min: int = 16 * MB
    """Less does not justify a separate file."""
    tasks_wanted: int = 0
    """A large bucket is cut so that about this many tasks run side by side; 0: as many as Spark has cores."""


@dataclass(frozen=True)
class RoundPart:
    """One future file: offsets [start, end) of a bucket."""

    bucket: BucketId
    partition: str | None
    start: int
    end: int
    at: int | None = None
    """The instant, for a primary-key bucket."""
    epoch: int | None = None
    """The epoch of the record before ``at``."""
    dead_from: int | None = None
    dead_epoch: int | None = None
    """The epoch of the record before ``dead_from``."""
    cut: int | None = None
    """Where the bucket of a log was cut for the round; ``epoch`` is then of the record before it."""

    @property
    def width(self) -> int:
        """Number of offsets."""
        return self.end - self.start

    def to_json(self) -> list[object]:
        """The part as plain data, for tasks."""
        return [
            *self.bucket,
            self.partition,
            self.start,
            self.end,
            self.at,
            self.epoch,
            self.dead_from,
            self.dead_epoch,
            self.cut,
        ]

    @classmethod
    def from_json(cls, found: Sequence[object]) -> RoundPart:
        """The part that ``to_json`` wrote."""
        table_id, partition_id, bucket, *rest = found
        return cls(BucketId(table_id, partition_id, bucket), *rest)  # type: ignore[arg-type]


Task = tuple[RoundPart, ...]
"""Parts that one task reads one after the other."""


@dataclass(frozen=True)
class RoundParts:
    """What a round reads, divided into tasks."""

    kind: Kind
    tasks: tuple[Task, ...]
    ends: Mapping[BucketId, int]
    """Where each bucket of the round will end in the lake."""
    rows: int
    """Offsets to read; an upper bound of the rows."""
    size_bytes: int
    more: bool
    """Whether another round should follow at once."""

    @property
    def empty(self) -> bool:
        """Whether the lake has everything."""
        return not self.ends


def plan_parts(
    kind: Kind,
    lake: Mapping[BucketId, Tiered],
    endings: Mapping[BucketId, Ending],
    row_bytes: Mapping[BucketId, float],
    bounds: Bounds,
    *,
    whole: bool,
) -> RoundParts:
    """The tasks of a round. ``whole``: buckets hold transactions, so nothing may be left for later."""
    wanted = [_wanted(kind, bucket, lake.get(bucket), ending) for bucket, ending in endings.items()]
    behind = [part for part in wanted if part.width > 0]
    sizes = {part.bucket: row_bytes.get(part.bucket, ROW_BYTES) for part in behind}
    chosen = behind if whole else _within(kind, behind, sizes, bounds.round_bytes)
    size = sum(part.width * sizes[part.bucket] for part in chosen)
    target = min(max(size / max(bounds.tasks_wanted, 1), bounds.task_bytes_min), bounds.task_bytes)
    pieces = [piece for part in chosen for piece in _cut(part, sizes[part.bucket], target)]
    left = sum(part.width for part in behind) - sum(part.width for part in chosen)
    return RoundParts(
        kind=kind,
        tasks=_packed(pieces, sizes, target),
        ends={part.bucket: part.end for part in chosen},
        rows=sum(part.width for part in chosen),
        size_bytes=int(size),
        more=left > 0,
    )


def _wanted(kind: Kind, bucket: BucketId, tiered: Tiered | None, ending: Ending) -> RoundPart:
    """Everything of a bucket that the lake lacks."""
    if tiered is not None and tiered.offset > ending.end:
        raise LakeCorrupt(
            f"the lake holds bucket {bucket} up to offset {tiered.offset} and its log was cut at {ending.end}",
            bucket=bucket,
        )
    if kind == "keys":
        start = 0 if tiered is None else tiered.offset
        return RoundPart(
            bucket,
            ending.partition,
            start,
            ending.end,
            at=ending.end,
            epoch=ending.epoch,
            dead_from=start or None,
            dead_epoch=None if tiered is None else tiered.epoch,
        )
    if tiered is None:
        return RoundPart(
            bucket, ending.partition, ending.start, ending.end, epoch=ending.epoch, cut=ending.end
        )
    if tiered.offset < ending.start:
        raise LakeCorrupt(
            f"bucket {bucket}: the lake ends at offset {tiered.offset}, and the log begins at {ending.start}. What "
            "lay between was removed before it was tiered, and cannot be brought back. Was table.datalake.enabled "
            "off for longer than table.log.ttl?",
            bucket=bucket,
            lake=tiered.offset,
            start=ending.start,
        )
    return RoundPart(bucket, ending.partition, tiered.offset, ending.end, epoch=ending.epoch, cut=ending.end)


# --- a round's limit ------------------------------------------------------------------------------------------------


def _within(
    kind: Kind, parts: list[RoundPart], sizes: Mapping[BucketId, float], limit: int
) -> list[RoundPart]:
    """As much of the parts as fits into a round, but at least something."""
    if sum(part.width * sizes[part.bucket] for part in parts) <= limit:
        return parts
    if kind == "keys":
        return _first_buckets(parts, sizes, limit)
    return _first_offsets(parts, sizes, limit)


def _first_buckets(parts: list[RoundPart], sizes: Mapping[BucketId, float], limit: int) -> list[RoundPart]:
    """Whole buckets, those farthest behind first."""
    chosen: list[RoundPart] = []
    size = 0.0
    for part in sorted(parts, key=lambda one: -one.width):
        size += part.width * sizes[part.bucket]
        if chosen and size > limit:
            break
        chosen.append(part)
    return chosen


def _first_offsets(parts: list[RoundPart], sizes: Mapping[BucketId, float], limit: int) -> list[RoundPart]:
    """The beginning of every bucket: an equal share of bytes, and what a small bucket leaves goes to the others."""
    chosen: list[RoundPart] = []
    left = float(limit)
    waiting = sorted(parts, key=lambda one: one.width * sizes[one.bucket])
    for number, part in enumerate(waiting):
        share = left / (len(waiting) - number)
        rows = max(1, int(share / sizes[part.bucket]))
        taken = part if rows >= part.width else replace(part, end=part.start + rows)
        chosen.append(taken)
        left -= taken.width * sizes[part.bucket]
    return chosen


# --- tasks ----------------------------------------------------------------------------------------------------------


def _cut(part: RoundPart, row_bytes: float, target: float) -> list[RoundPart]:
    """Pieces of about the target size; the first one also brings the dead offsets."""
    count = min(max(1, round(part.width * row_bytes / target)), part.width)
    edges = [part.start + part.width * number // count for number in range(count + 1)]
    pieces = [replace(part, start=low, end=high) for low, high in pairwise(edges)]
    return [pieces[0], *(replace(one, dead_from=None, dead_epoch=None) for one in pieces[1:])]


def _packed(pieces: Sequence[RoundPart], sizes: Mapping[BucketId, float], target: float) -> tuple[Task, ...]:
    """Small pieces share a task. Large tasks come first, so that none of them runs alone at the end."""
    tasks: list[Task] = []
    held: list[RoundPart] = []
    size = 0.0
    for piece in sorted(pieces, key=lambda one: -one.width * sizes[one.bucket]):
        own = piece.width * sizes[piece.bucket]
        if held and size + own > target:
            tasks.append(tuple(held))
            held, size = [], 0.0
        held.append(piece)
        size += own
    if held:
        tasks.append(tuple(held))
    return tuple(tasks)
