"""A model of stages: how a sink publishes an epoch once, under faults. This file has its nouns.

What happens, in order:

    1. A task stages its rows bucket by bucket and seals them: durable, invisible, under a name nobody used before, with
       a deadline by the tablet's own clock. It tells the driver names and deadlines.
    2. The driver asks the coordinator to decide. The coordinator reads the sink's row and rolls forward what is pending
       there. Tables that have the epoch already keep it; for the others ONE metadata commit requires that the row is
       the one that was read, that every table exists and that every listed deadline lies above the table's floor. It
       sets ``last[table]`` for every table of the sink, with or without rows, and ``pending``; its number is n.
    3. Rolling forward: from one snapshot of the metadata each bucket gets ALL pending commits that list it, by n. It
       appends those above its own last n, each as one group whose batches carry (sink, epoch, n). The high watermark
       passes only closed and synced groups, recovery cuts an open one, and a stage goes after that sync.
    4. Expiry of what nobody decided: raise the table's floor to the deadline, THEN read all pending lists, THEN free
       what is in none. The row of a one-shot sink goes once it is applied, in the commit that raises the floor
       to its deadlines, so that a repeated call is refused.
    5. A planned read takes the number N of a snapshot, waits until what was pending in it is applied, and cuts each
       bucket at its first group above N.

What is checked, I1 to I9 after every step and the others when the faults have stopped:

    I1   no row is visible twice
    I2   an epoch's rows in a table come from one attempt, and from one task per partition
    I3   a bucket shows an epoch whole or not at all
    I4   a bucket has the epochs of a sink in their order
    I5   nothing undecided is visible
    I6   what was visible stays, and a decided stage exists until it is applied
    I7   a planned read holds whole commits over all buckets and tables, all decided before it, and never goes back
    I8   in a primary-key changelog every old image is the image before it
    I9   the tables of a commit all existed
    I10  every epoch is decided and visible in the end
    I11  no stage and no one-shot row is left
    I12  acknowledged ordinary writes are there once

Assumed: metadata is linearizable, what was sealed or synced survives, staged rows were checked (applying them cannot
fail), table ids are not used again. For progress only: a lease outlasts an attempt and the skew of the clocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Place = tuple[int, int]  # (table id, bucket)
EPOCHS, LEASE, BUCKETS, KEYS = 3, 60, 2, 3
SINKS: dict[str, tuple[str, ...]] = {
    "s": ("log", "pk"),
    "q": ("log",),
}  # one multi-table sink, one single-table sink


class Violation(Exception): ...


@dataclass(frozen=True)
class Stage:
    id: int
    place: Place
    sink: str
    epoch: int
    attempt: int
    deadline: int
    rows: tuple[tuple[int, int], ...]  # (uid, key)
    images: tuple[tuple[int, int, int | None], ...] = ()  # only for the bug `images_at_stage`


@dataclass(frozen=True)
class Batch:
    rows: tuple[tuple[int, int, int | None], ...]  # (uid, key, uid it replaced)
    mark: tuple[str, int, int] | None = None  # (sink, epoch, n), in the same append as the rows
    last: bool = True  # closes its group


@dataclass(frozen=True)
class SinkRow:  # all that metadata keeps per sink
    version: int = 0
    epoch: int = -1
    n: int = 0
    deadline: int = 0
    last: dict[int, int] = field(default_factory=dict)  # table id -> last decided epoch
    pending: dict[Place, tuple[int, ...]] = field(default_factory=dict)  # the last commit's stages: pinned


class Metadata:
    """`read` and `commit(requirements, updates)`, each atomic."""

    def __init__(self) -> None:
        self.sinks: dict[str, SinkRow] = {}
        self.floor: Counter[int] = Counter()
        self.tables: dict[str, int] = {}
        self.n = 0

    def row(self, sink: str) -> SinkRow:
        return self.sinks.get(sink, SinkRow())

    def pinned(self) -> set[int]:
        return {i for r in self.sinks.values() for ids in r.pending.values() for i in ids}

    def failed(self, require: Sequence[tuple[str, Any, Any]]) -> str:
        for kind, key, value in require:
            if kind == "version" and self.row(key).version != value:
                return "version"
            if kind == "exists" and key not in self.tables.values():
                return "dropped"
            if kind == "deadline" and value <= self.floor[key]:
                return "expired"
        return ""

    def commit(self, require: Sequence[tuple[str, Any, Any]], sink: str, row: SinkRow) -> str:
        why = self.failed(require)
        if not why:
            self.n += 1
            self.sinks[sink] = replace(row, version=self.row(sink).version + 1, n=self.n)
        return why


@dataclass
class Commit:  # the oracle's memory of a decision; the protocol never reads it
    sink: str
    epoch: int
    attempt: int
    tables: frozenset[int]
    rows: dict[Place, set[int]]
