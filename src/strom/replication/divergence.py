"""Where two logs part, found by epochs (R8).

One leader wrote all records of an epoch, so two logs whose records before an offset have the same epoch are equal up to
that offset. A follower whose record has another epoch cuts to where the epochs agree, and asks again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

NO_EPOCH = -1
"""The epoch before the first record."""


class EpochEnd(NamedTuple):
    """An epoch, and where its records end in the log that was asked."""

    epoch: int
    end: int


class LogsAgree(NamedTuple):
    """Everything before the follower's position is equal in both logs."""


class BaseNeeded(NamedTuple):
    """The logs cannot be compared, because what would tell lies below this log: the follower copies the base (R18)."""


@dataclass(frozen=True, slots=True)
class EpochHistory:
    """A log as the comparison sees it: where it starts and ends, and which epochs wrote it.

    ``starts`` are (epoch, first offset), both rising; an epoch without records stands only at the end. The first one
    covers the record before ``log_start``, if that is known: otherwise a follower there has to copy the base.
    """

    log_start: int
    end: int
    starts: Sequence[tuple[int, int]]

    def epoch_before(self, offset: int) -> int | None:
        """The epoch of the record before ``offset``; ``NO_EPOCH`` before the first, None if it is not known here."""
        if not self.log_start <= offset <= self.end:
            return None
        if offset == 0:
            return NO_EPOCH
        index = bisect_left(self.starts, offset, key=lambda start: start[1])
        return self.starts[index - 1][0] if index else None

    def end_of_epoch(self, epoch: int) -> EpochEnd | None:
        """The newest epoch up to this one that has records here, and their end; None if that lies below the log."""
        end = min((start for later, start in self.starts if later > epoch), default=self.end)
        if not self.log_start <= end <= self.end:
            return None
        found = self.epoch_before(end)
        return None if found is None or found > epoch else EpochEnd(found, end)


def compare(history: EpochHistory, at: int, epoch_before: int) -> LogsAgree | EpochEnd | BaseNeeded:
    """What a leader with this log says to a follower that goes on at ``at``, behind a record of ``epoch_before``."""
    if at < history.log_start:
        return BaseNeeded()
    if history.epoch_before(at) == epoch_before:
        return LogsAgree()
    return history.end_of_epoch(epoch_before) or BaseNeeded()


def cut_for(history: EpochHistory, leader: EpochEnd) -> int | None:
    """Where a follower with this log cuts after a leader's answer; None: it has to copy the base.

    Never to a watermark: what was committed is in both logs, and the epochs show it.
    """
    mine = history.end_of_epoch(leader.epoch)
    return None if mine is None else min(leader.end, mine.end)
