"""One copy of a bucket, as other copies see it: what it has, and what a follower gets of it.

Everything here may be called by any thread, beside the lane: a log only grows while somebody pulls from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from strom.log.copies.following import epochs_of
from strom.log.copies.pulled import GroupMark, PulledBatches, summed
from strom.log.layout import NO_EPOCH
from strom.log.log import Log
from strom.replication.divergence import BaseNeeded, EpochEnd, EpochHistory, compare
from strom.tablet.recent_batches import RecentBatches


class CopyPosition(NamedTuple):
    """What a copy has, and where it goes on."""

    start: int
    """Where its log starts."""
    end: int
    """Between two groups or batches, as is ``synced`` (R13)."""
    synced: int
    last_epoch: int
    """Of the record before ``end``, -1 for none."""
    number: int
    """Of its newest group."""
    at: int
    """Where pulling goes on: above ``end`` while a group is not complete."""
    epoch_before: int
    """Of the record before ``at``."""


class Pullable(Protocol):
    """What is needed of a tablet."""

    log: Log
    recent: RecentBatches

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record at ``offset`` - 1, -1 when there is none."""

    def history(self) -> EpochHistory:
        """Which epochs wrote it."""


def position_of(tablet: Pullable) -> CopyPosition:
    """What a copy has."""
    log = tablet.log
    end, at = log.end_offset, log.following.offset
    return CopyPosition(
        log.start_offset,
        end,
        min(log.synced_end, end),
        tablet.epoch_before(end),
        log.groups.newest,
        at,
        tablet.epoch_before(at),
    )


def history_of(log: Log, starts: Sequence[tuple[int, int]]) -> EpochHistory:
    """The epochs of a log. A log that was alone once may not know the epoch of the record before its start."""
    start = log.start_offset
    if start > 0 and not (starts and starts[0][1] < start):
        starts = ((NO_EPOCH, start - 1), *starts)
    return EpochHistory(start, log.end_offset, starts)


def batches_from(
    tablet: Pullable, at: int, epoch_before: int, max_bytes: int
) -> PulledBatches | EpochEnd | BaseNeeded:
    """See ``Tablet.batches_from``."""
    log, history = tablet.log, tablet.history()
    found = compare(history, at, epoch_before)
    if isinstance(found, EpochEnd | BaseNeeded):
        return found
    until = history.end
    part = tablet.recent.read(at, until=until, max_bytes=max_bytes, projection=None)
    if part is None:
        part = log.read(at, until=until, max_bytes=max_bytes, heed_marks=False)
    end, groups = part.next_offset, log.groups
    return summed(
        PulledBatches(
            at,
            end,
            part.buffers,
            epochs_of(log.epochs.starts, at, end),
            tuple(GroupMark.of(one, log_start=history.log_start) for one in groups.touching(at, end)),
            groups.forgotten,
        )
    )
