"""What a follower and a leader say to each other, and what each keeps in memory for one epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from replication.specification.metadata import Bucket, Member
from replication.specification.records import Mark, Record, Stage


class Pull(NamedTuple):
    """A follower asks for more, and says what it has."""

    epoch: int
    """Of the leader it follows."""
    ask: int
    """Only the answer to the newest question is taken (a connection gives that)."""
    member: Member
    at: int
    """Where it goes on; may be inside a group."""
    epoch_before: int
    """Of the record before ``at``."""
    end: int
    """Boundaries of groups, both."""
    synced: int
    stages: int
    """How much of the leader's journal of stages it has, durable as promised."""
    journal: int
    """How much of it it has read."""
    barrier: int
    """The highest it was told in this epoch."""
    copying: tuple[int, int] | None
    """The base it copies, and the next piece."""


class Answer(NamedTuple):
    """What a leader answers a pull with."""

    epoch: int
    ask: int
    kind: str
    """records | diverging | copy"""
    records: tuple[Record, ...] = ()
    marks: tuple[Mark, ...] = ()
    """Of every group that the records touch: before them, never after (R13)."""
    high: int = 0
    diverging: tuple[int, int] = (0, 0)
    """(epoch, its end here)"""
    journal: tuple[tuple[str, Stage], ...] = ()
    journal_end: int = 0
    barrier: int = 0
    piece: Any = None
    """(C, number, content)"""


@dataclass
class Report:
    """The best a leader heard of a member in its epoch."""

    end: int = 0
    synced: int = 0
    stages: int = 0
    barrier: int = 0


@dataclass
class Waiting:
    """Who waits for a leader's watermarks."""

    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    """end, writer, sequence, uid"""
    seals: list[tuple[int, Stage]] = field(default_factory=list)
    """position in the journal"""
    lookups: list[tuple[int, int, int]] = field(default_factory=list)
    """barrier, key, what the oracle expects"""


@dataclass
class Leading(Waiting):
    """What a leader has in memory, for one epoch."""

    epoch: int = 0
    start: int = 0
    """The end of its log when the epoch began."""
    reports: dict[Member, Report] = field(default_factory=dict)
    proposals: list[Bucket] = field(default_factory=list)
    proposed_on: int = 0
    """The entry's version they require."""
    journal: list[tuple[str, Stage]] = field(default_factory=list)
    """Stages sealed (+) and dropped (-): first all it held, then in order."""
    journal_synced: int = 0
    barrier: int = 0
    holds: dict[int, int] = field(default_factory=dict)
    """Who copies the base at which offset (R18)."""


@dataclass
class Following:
    """What a follower has in memory, for one epoch of its leader."""

    epoch: int
    journal: int = 0
    journal_synced: int = 0
    mirrored: set[int] = field(default_factory=set)
    even_at: int = -1
    """The journal's end at the first answer."""
    even: bool = False
    """Read up to there: what is not mirrored is not the leader's."""
    barrier: int = 0
    copying: dict[int, Any] | None = None
    """Pieces of a base."""
    copying_at: int = -1
    late_marks: list[Mark] = field(default_factory=list)
    """Only for a planted break."""
