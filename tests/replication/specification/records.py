"""What a bucket's copies are made of: records, groups, stages, and a disk that forgets what was not synced.

A record is a batch of one row; a base is all base files together. What is made of bytes, or slow, is left out.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

IN_FLIGHT = 5


class Record(NamedTuple):
    """A batch of one row. The uid is for the oracle and stands for the content."""

    uid: int
    epoch: int
    key: int
    writer: int = -1
    sequence: int = -1


class Mark(NamedTuple):
    """A closed group, beside the log: the decision's number and the offsets it took."""

    number: int
    start: int
    end: int


class Stage(NamedTuple):
    """Sealed rows. The leader that sealed it stamped the deadline."""

    id: int
    rows: tuple[tuple[int, int], ...]
    """(uid, key)"""
    deadline: int


Sequences = tuple[tuple[int, int], ...]
"""Of one writer: the last five (sequence, offset)."""


class Base(NamedTuple):
    """All that a copy keeps of the records below its log: base files, writers, the newest group's number, the last
    epoch."""

    offset: int = 0
    epoch: int = 0
    index: Mapping[int, int] = {}
    """By key, the offset of its newest record."""
    writers: Mapping[int, Sequences] = {}
    number: int = 0


@dataclass
class OpenGroup:
    """A group that a leader writes, or a follower pulls: on disk, but behind the end of the log (R13)."""

    number: int
    start: int
    end: int
    """Of a leader's: not known yet, -1."""
    records: list[Record] = field(default_factory=list)
    todo: list[tuple[int, int]] = field(default_factory=list)


class Disk:
    """What a process leaves behind. A kill keeps all of it; a power loss keeps what was synced, and maybe some more."""

    def __init__(self, identity: int) -> None:
        self.identity, self.lineage, self.placement, self.clean = identity, 0, 0, False
        self.wipe(0)

    def wipe(self, placement: int) -> None:
        self.placement, self.base = placement, Base()
        self.log: list[Record] = []
        self.marks: list[Mark] = []
        self.stages: dict[int, Stage] = {}
        self.synced, self.synced_stages = 0, set[int]()

    @property
    def end(self) -> int:
        return self.base.offset + len(self.log)

    @property
    def number(self) -> int:
        return self.marks[-1].number if self.marks else self.base.number

    def record(self, offset: int) -> Record:
        return self.log[offset - self.base.offset]

    def epoch_before(self, offset: int) -> int:
        return self.base.epoch if offset <= self.base.offset else self.record(offset - 1).epoch

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """The newest epoch up to this one that the log has records of, and where they end; None: below what is kept."""
        end = self.end
        while end > self.base.offset and self.record(end - 1).epoch > epoch:
            end -= 1
        found = self.epoch_before(end)
        return (found, end) if found <= epoch else None

    def boundary(self, offset: int) -> int:
        """The largest group boundary up to ``offset``."""
        return next((mark.start for mark in self.marks if mark.start < offset < mark.end), offset)

    def cut(self, end: int) -> None:
        del self.log[end - self.base.offset :]
        self.marks = [mark for mark in self.marks if mark.end <= end]
        self.synced = min(self.synced, end)

    def power_loss(self, rng: random.Random) -> None:
        kept = rng.choice([self.synced, rng.randint(self.synced, self.end)])
        self.cut(self.boundary(kept))
        # R4: a clean stop left nothing to lose.
        self.synced, self.lineage = self.end, self.lineage + (not self.clean)
        self.stages = {
            stage_id: stage
            for stage_id, stage in self.stages.items()
            if stage_id in self.synced_stages or rng.random() < 0.3
        }
        self.synced_stages = set(self.stages)


def replay(base: Base, log: Iterable[Record]) -> dict[int, int]:
    """The index that base and log give."""
    index = dict(base.index)
    for offset, record in enumerate(log, base.offset):
        index[record.key] = offset
    return index


def remember(writers: dict[int, Sequences], record: Record, offset: int) -> None:
    """A writer's sequence was seen at an offset."""
    if record.writer >= 0:
        known = writers.get(record.writer, ())
        writers[record.writer] = (*known, (record.sequence, offset))[-IN_FLIGHT:]
