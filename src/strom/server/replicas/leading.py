"""A bucket that this server leads: what is committed, who is acknowledged, and what followers are told.

The watermarks are computed anew whenever something moved: an append, a sync of this copy, a follower's report, a read
entry. What they allow is done at once: waiting calls are answered, waiting pulls are woken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from strom.errors import NotConfirmed, TooFewInSync
from strom.model.bucket import BucketId
from strom.replication.bucket_entry import BucketEntry
from strom.replication.divergence import BaseNeeded, EpochHistory, LogsAgree
from strom.replication.leadership import Leadership, Verdict, Watermarks
from strom.replication.member import Member
from strom.replication.pulls import PullQuestion
from strom.replication.reports import Report
from strom.replication.stage_journal import StageJournal
from strom.server.replicas.leader_waits import SERVES, LeaderWaits
from strom.tablet.tablet import Tablet

BASE_BYTES_MIN = 16 * 1024 * 1024
"""A copy that has nothing gets the files of the base if they spare it so much of the log, since to copy a file costs a
fraction of taking in its rows anew. Less is pulled as quickly."""

Wake = Callable[[BucketId, bool], None]
"""Something is new for the followers of a bucket: rows (True: at once), or only a watermark."""


class CopyLag(NamedTuple):
    """How far a copy is behind, and for how long."""

    bytes: int
    seconds: float


@dataclass
class _Pace:
    """How a member kept up: when it last had everything, and what there was when it last asked."""

    caught_up_at: float
    asked_at: float
    end_then: int


class LeadingBucket:
    """One epoch of one bucket. Belongs to the loop."""

    def __init__(
        self,
        tablet: Tablet,
        leadership: Leadership,
        journal: StageJournal,
        waits: LeaderWaits,
        wake: Wake,
        now: float,
    ) -> None:
        self.tablet = tablet
        self.leadership = leadership
        self.journal = journal
        self.began = now
        self._waits = waits
        self._wake = wake
        self._stopped = False
        self._loop = asyncio.get_running_loop()
        self._paces: dict[Member, _Pace] = {}
        self._told = (tablet.end_offset, tablet.high_watermark, journal.end, 0)

    def start(self) -> None:
        """From now on the tablet tells what moves."""
        self.tablet.moved = self.advance
        self.tablet.stages.on_change = self._stage_changed

    def stop(self) -> None:
        """The role has changed."""
        self._stopped = True
        self.tablet.moved = None
        self.tablet.stages.on_change = None

    @property
    def epoch(self) -> int:
        """The epoch that is led."""
        return self.leadership.epoch

    @property
    def serves(self) -> bool:
        """Whether readers without a memory may be answered (R11)."""
        return self.leadership.serving

    @property
    def stable(self) -> int:
        """Up to where every counted member has the log synced (R23)."""
        return self.leadership.stable

    def own(self) -> Report:
        """What this copy has."""
        log, group = self.tablet.log, self.tablet.durability == "group"
        stages = self.journal.durable if group else self.journal.end
        synced = log.synced_end  # first: it never is above an end that is read later
        return Report(log.end_offset, synced, stages, self.leadership.barrier)

    def advance(self) -> None:
        """Something moved: raise the watermarks and answer whoever waited for that."""
        own = self.own()
        marks = self.leadership.watermarks(own)
        waits = self._waits
        waits.promised.advance(own.promised(self.tablet.durability))
        self.tablet.raise_high(marks.high, marks.stable)
        if self.serves:
            waits.serving.advance(SERVES)
            waits.barriers.advance(marks.barrier)
        if marks.enough:
            waits.seals.advance(marks.stages)
        self._tell(own, marks)

    def _tell(self, own: Report, marks: Watermarks) -> None:
        now = (own.end, marks.high, self.journal.end, self.leadership.barrier)
        before, self._told = self._told, now
        if now != before:
            urgent = (now[0], *now[2:]) != (before[0], *before[2:])
            self._wake(self.tablet.bucket, urgent)

    # --- followers -------------------------------------------------------------------------------------------

    def asked(self, question: PullQuestion, now: float) -> Verdict:
        """Judge a question; its report counts if the logs agree (R5, R8)."""
        verdict = self.leadership.asked(question, self.history())
        report = self.leadership.report_of(question.member)
        if report is not None:
            self._keep_pace(question.member, report, now)
            self.advance()
        if isinstance(verdict, LogsAgree) and question.at == 0 and self.tablet.base_bytes >= BASE_BYTES_MIN:
            return BaseNeeded()
        return verdict

    def history(self) -> EpochHistory:
        """This log, as it is compared with a follower's."""
        log = self.tablet.log
        end = log.end_offset
        return EpochHistory(log.start_offset, end, log.epochs.starts)

    def _keep_pace(self, member: Member, report: Report, now: float) -> None:
        end = self.tablet.end_offset
        have = report.promised(self.tablet.durability)
        pace = self._paces.get(member)
        if pace is None:
            pace = self._paces[member] = _Pace(self.began, now, end)
        if have >= end:
            pace.caught_up_at = now
        elif have >= pace.end_then:
            pace.caught_up_at = max(pace.caught_up_at, pace.asked_at)
        pace.asked_at, pace.end_then = now, end

    def late(self, entry: BucketEntry, before: float, heard_at: Callable[[int], float]) -> list[Member]:
        """The copies that did not have everything at any time since ``before``, the worst first.

        ``heard_at``: when a server last asked for anything.
        """
        since = {
            member: self._caught_up_at(member, heard_at(member.server_id))
            for member in (*entry.in_sync, *self._paces)
            if member.server_id != self.leadership.member.server_id
        }
        return sorted((one for one, at in since.items() if at < before), key=lambda one: (since[one], one))

    @property
    def heard(self) -> list[Member]:
        """The copies that asked in this epoch."""
        return list(self._paces)

    def _caught_up_at(self, member: Member, heard_at: float) -> float:
        """A member that has everything, and whose server goes on asking, keeps up though nothing changes here."""
        pace, report = self._paces.get(member), self.leadership.report_of(member)
        if pace is None or report is None:
            return self.began
        has_all = report.promised(self.tablet.durability) >= self.tablet.end_offset
        return max(pace.caught_up_at, heard_at) if has_all else pace.caught_up_at

    def behind(self, server_id: int, heard_at: float, now: float) -> CopyLag | None:
        """How far the copy of a server is behind this one, and for how long; None if it has everything.

        ``heard_at``: when the server last asked for anything. A copy that has not asked in this epoch lacks everything,
        as far as is known here.
        """
        member = next((one for one in self._paces if one.server_id == server_id), None)
        report = None if member is None else self.leadership.report_of(member)
        log = self.tablet.log
        have = log.start_offset if report is None else max(report.end, log.start_offset)
        if member is not None and have >= log.end_offset:
            return None
        since = self.began if member is None else self._caught_up_at(member, heard_at)
        return CopyLag(log.bytes_from(have) if have < log.end_offset else 0, max(0.0, now - since))

    def lag(self) -> int:
        """How many offsets the copy that is furthest behind is behind; of those that asked in this epoch."""
        end = self.tablet.end_offset
        reports = (self.leadership.report_of(member) for member in self._paces)
        return max((end - report.end for report in reports if report is not None), default=0)

    # --- stages and barriers ---------------------------------------------------------------------------------

    def sealed(self, stage_id: bytes) -> int:
        """A stage is sealed here, as durable as promised; the position at which every member has it (R14)."""
        position = self.journal.add(stage_id)
        self.journal.synced(position)
        self.advance()
        return position

    def _stage_changed(self, stage_id: bytes, there: bool) -> None:
        """A stage was sealed, or is gone. On the loop or in the lane."""
        self._loop.call_soon_threadsafe(self._journal_stage, stage_id, there)

    def _journal_stage(self, stage_id: bytes, there: bool) -> None:
        if self._stopped:
            return
        if there:
            self.sealed(stage_id)
        else:
            self.journal.drop(stage_id)
            self.journal.synced(self.journal.end)
            self.advance()

    def not_confirmed(self, barrier: int, wait_s: float) -> NotConfirmed:
        """Who did not echo a barrier in time, and what to do about it."""
        bucket = self.tablet.bucket
        silent = [str(member.server_id) for member in self.leadership.unconfirmed(barrier)]
        return NotConfirmed(
            f"bucket {bucket}: no answer from server {' and '.join(silent)} in {wait_s:g} s; its copy is in sync, "
            "so another server may lead the bucket by now. Try again: a silent copy leaves the in-sync set by itself, "
            "unless table.min.insync needs it; then start its server, or move the copy to another one "
            "(strom cluster move). A lookup that is not strong does not wait for it",
            bucket=str(bucket),
            silent=silent,
        )

    # --- the entry -------------------------------------------------------------------------------------------

    def entry_read(self, entry: BucketEntry, version: int) -> None:
        """The entry changed, and still names this leader in this epoch."""
        self.leadership.entry_read(entry, version)
        self.advance()

    def check_enough(self) -> None:
        """Refuse what could not be acknowledged (R9)."""
        counted, least = len(self.leadership.counted()), self.leadership.promise.min_insync
        if counted < least:
            raise TooFewInSync(
                f"bucket {self.tablet.bucket} has {counted} of {least} copies in sync that its table requires "
                "(table.min.insync): nothing was written; try again when another copy has caught up",
                bucket=str(self.tablet.bucket),
                in_sync=counted,
                min_insync=least,
            )
