"""What a follower asks and what a leader answers, without the bytes.

Batches, stages' bodies and pieces of files travel beside these; nothing here looks into them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from strom.replication.divergence import EpochEnd
from strom.replication.member import Member
from strom.replication.reports import Report
from strom.replication.stage_journal import JournalRead

NO_BASE = -1


class BaseProgress(NamedTuple):
    """How far a follower has copied a base: the offset that the base ends at, and the next byte it wants.

    ``offset`` is ``NO_BASE`` when it has none yet and wants one.
    """

    offset: int = NO_BASE
    file: int = 0
    position: int = 0


class CopyFacts(NamedTuple):
    """A follower's copy as a question names it."""

    at: int
    """Where it goes on; may be inside a group."""
    epoch_before: int
    """Of the record before ``at`` (R8)."""
    end: int
    """Boundaries of groups, both (R13)."""
    synced: int


@dataclass(frozen=True, slots=True)
class PullQuestion:
    """A pull: what the follower wants, and its report."""

    epoch: int
    """Of the leader that it follows."""
    ask: int
    """Only the answer to the newest question is taken (R12)."""
    member: Member
    at: int
    epoch_before: int
    report: Report
    journal: int
    """How much of the journal of stages it has read, and where that ended when it began."""
    journal_began: int
    copying: BaseProgress | None = None


class BatchesFrom(NamedTuple):
    """Batches from the position asked for: whole ones, and of a group all its marks before them (R13)."""


class BaseListing(NamedTuple):
    """The base that the leader holds for the follower: the offset it ends at, and the bytes of each file (R18)."""

    offset: int
    sizes: tuple[int, ...]


class BasePiece(NamedTuple):
    """Some bytes of a file of a base."""

    offset: int
    file: int
    position: int
    length: int


AnswerContent = BatchesFrom | EpochEnd | BaseListing | BasePiece


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """A leader's answer to one pull."""

    epoch: int
    ask: int
    content: AnswerContent
    high: int
    stable: int
    barrier: int
    losses: int
    journal: JournalRead | None = None
    """With batches only: a follower whose log does not match mirrors nothing."""
