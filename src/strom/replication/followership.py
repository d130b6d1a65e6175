"""What a follower knows of one epoch of its leader: what it asked, how far its stages are, and the base it copies.

Lives in memory. A restart, another leader or a dropped copy begins a new one, so that no late answer is taken (R12).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from strom.replication.divergence import EpochEnd, EpochHistory, cut_for
from strom.replication.member import CopyPromise, Member
from strom.replication.pulls import (
    BaseListing,
    BasePiece,
    BaseProgress,
    CopyFacts,
    PullAnswer,
    PullQuestion,
)
from strom.replication.reports import Report
from strom.replication.stage_journal import StageMirror


class Late(NamedTuple):
    """The answer is not to the newest question: leave everything as it is, and ask again (R12)."""


class TakeBatches(NamedTuple):
    """Append the batches, raise the high watermark to ``high`` or the copy's end, then mirror the stages."""

    high: int
    stable: int


class CutTo(NamedTuple):
    """Cut the log here, or to the group boundary below, and undo what the records did to index and writers (R8)."""

    offset: int


class BeginBase(NamedTuple):
    """Throw away what was copied of another base; the next questions ask for the files of this one (R18)."""

    listing: BaseListing


class TakePiece(NamedTuple):
    """Write these bytes to the file."""

    piece: BasePiece


class InstallBase(NamedTuple):
    """Write the last bytes, if any; then check the files and replace the copy by this base, all or nothing."""

    offset: int
    piece: BasePiece | None


FollowerStep = Late | TakeBatches | CutTo | BeginBase | TakePiece | InstallBase


class Followership:
    """One epoch of one follower. One question at a time: ask the next when the step of the last answer is done."""

    def __init__(
        self,
        epoch: int,
        member: Member,
        promise: CopyPromise,
        asks: Iterator[int],
        *,
        holds_stages: bool = False,
    ) -> None:
        """``asks`` counts the questions of the whole process, from 1, so that no two are taken for each other.

        ``holds_stages``: the copy has stages, which the leader may have dropped.
        """
        self.epoch = epoch
        self.member = member
        self.promise = promise
        self.stages = StageMirror(holds_any=holds_stages)
        self.barrier = 0
        self.copying: BaseProgress | None = None
        self._listing: BaseListing | None = None
        self._asks = asks
        self._waiting_for = 0

    def question(self, copy: CopyFacts) -> PullQuestion:
        """The next pull. Whatever was asked before is not waited for any longer."""
        self._waiting_for = next(self._asks)
        return PullQuestion(
            epoch=self.epoch,
            ask=self._waiting_for,
            member=self.member,
            at=copy.at,
            epoch_before=copy.epoch_before,
            report=self.report(copy),
            journal=self.stages.position,
            journal_began=self.stages.began,
            copying=self.copying,
        )

    def report(self, copy: CopyFacts) -> Report:
        """What the copy has; ``stages.synced`` says up to where its stages are as durable as promised."""
        return Report(copy.end, copy.synced, self.stages.durable, self.barrier)

    def take(self, answer: PullAnswer, history: EpochHistory) -> FollowerStep:
        """What to do about an answer; ``history`` is of the follower's own log."""
        if answer.epoch != self.epoch or answer.ask != self._waiting_for or not self._waiting_for:
            return Late()
        self._waiting_for = 0  # once
        match answer.content:
            case BaseListing() as listing:
                return self._begin_base(listing)
            case BasePiece() as piece:
                return self._take_piece(piece)
            case EpochEnd() as end:
                return self._cut(end, history)
            case _:
                self._end_copying()
                self.barrier = max(self.barrier, answer.barrier)
                return TakeBatches(answer.high, answer.stable)

    def _cut(self, leader: EpochEnd, history: EpochHistory) -> FollowerStep:
        self._end_copying()
        to = cut_for(history, leader)
        if to is not None:
            return CutTo(to)
        self.copying = BaseProgress()  # what would tell is below this log: ask for a base
        return Late()

    # --- copying a base (R18) ------------------------------------------------------------------------------------

    def _begin_base(self, listing: BaseListing) -> FollowerStep:
        self._listing, self.copying = listing, BaseProgress(listing.offset)
        return self._skip_empty(None) or BeginBase(listing)

    def _take_piece(self, piece: BasePiece) -> FollowerStep:
        """A piece is taken where it fits: of this base, of this file, where the last one ended."""
        if not self._fits(piece):
            self._end_copying()
            self.copying = BaseProgress()  # another base: begin anew
            return Late()
        self.copying = BaseProgress(piece.offset, piece.file, piece.position + piece.length)
        return self._skip_empty(piece) or TakePiece(piece)

    def _fits(self, piece: BasePiece) -> bool:
        return (
            self._listing is not None
            and self.copying == (piece.offset, piece.file, piece.position)
            and 0 < piece.length <= self._listing.sizes[piece.file] - piece.position
        )

    def _skip_empty(self, piece: BasePiece | None) -> InstallBase | None:
        """Go to the next file that has bytes left to copy; none: the base is here."""
        assert self.copying is not None
        assert self._listing is not None
        offset, file, position = self.copying
        while file < len(self._listing.sizes) and position >= self._listing.sizes[file]:
            file, position = file + 1, 0
        self.copying = BaseProgress(offset, file, position)
        if file < len(self._listing.sizes):
            return None
        self._end_copying()
        return InstallBase(offset, piece)

    def _end_copying(self) -> None:
        self.copying = self._listing = None
