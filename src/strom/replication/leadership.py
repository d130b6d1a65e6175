"""What a leader knows in one epoch: what the members have, what is committed, and whom to count.

Lives in memory; a new epoch begins a new one. The caller reads the entry, commits proposals, and moves the tablet's
watermarks to what ``watermarks`` returns.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from strom.replication.bucket_entry import BucketEntry
from strom.replication.divergence import BaseNeeded, EpochEnd, EpochHistory, LogsAgree, compare
from strom.replication.member import CopyPromise, Member
from strom.replication.pulls import PullQuestion
from strom.replication.registration import Registrations
from strom.replication.reports import NOTHING, Report


class Watermarks(NamedTuple):
    """What all counted members have."""

    high: int
    """Committed: visible, and acknowledged with ``acks=all`` if ``enough``."""
    stable: int
    """Synced everywhere; the lake goes no further (R23)."""
    stages: int
    """A seal up to this position of the journal is acknowledged if ``enough`` (R14)."""
    barrier: int
    """A strong lookup with a barrier up to this one is answered once the leader serves (R22)."""
    enough: bool
    """Whether at least min.insync members are counted: otherwise nothing is acknowledged (R9)."""


class NewerEpoch(NamedTuple):
    """The follower knows of a newer leader: step down at once (R2)."""

    epoch: int


class OlderEpoch(NamedTuple):
    """The follower does not know of this epoch yet; it is told not to ask here, and counts for nothing (R5)."""


Verdict = NewerEpoch | OlderEpoch | LogsAgree | EpochEnd | BaseNeeded


class Leadership:
    """One epoch of one leader."""

    def __init__(
        self,
        entry: BucketEntry,
        version: int,
        member: Member,
        promise: CopyPromise,
        *,
        start: int,
        high: int,
        stable: int,
    ) -> None:
        """Begin the epoch of an entry that names this process; ``start`` is the end of the log at this moment, without
        an open group (R13), ``high`` and ``stable`` what the copy knows so far."""
        self.epoch = entry.epoch
        self.start = start
        self.member = member
        self.promise = promise
        self.high = high
        self.stable = stable
        self.barrier = 0
        self._reports: dict[Member, Report] = {}
        self._in_sync = frozenset(entry.in_sync)
        self._version = version
        self._proposed: frozenset[Member] = frozenset()
        self._proposed_on = -1

    # --- what followers say ------------------------------------------------------------------------------------

    def asked(self, question: PullQuestion, history: EpochHistory) -> Verdict:
        """Judge a pull, and take its report if the follower's log is a prefix of this one."""
        if question.epoch > self.epoch:
            return NewerEpoch(question.epoch)
        if question.epoch < self.epoch:
            return OlderEpoch()
        if question.copying is not None:
            return BaseNeeded()
        verdict = compare(history, question.at, question.epoch_before)
        if isinstance(verdict, LogsAgree):
            self.heard(question.member, question.report)  # R5: compared first, counted then
        return verdict

    def heard(self, member: Member, report: Report) -> None:
        """A copy of this identity reported in this epoch, and its log was compared (R5)."""
        self._reports[member] = report.merged(self._reports.get(member, NOTHING))

    def report_of(self, member: Member) -> Report | None:
        """The best heard of this copy in this epoch; None, not zero, if it has not asked yet (R5)."""
        return self._reports.get(member)

    # --- whom to count -----------------------------------------------------------------------------------------

    def entry_read(self, entry: BucketEntry, version: int) -> None:
        """The entry as it was read, in any order; an older one than known changes nothing."""
        if version <= self._version or entry.epoch != self.epoch:
            return
        self._version, self._in_sync = version, frozenset(entry.in_sync)
        if version > self._proposed_on:  # R7: those proposals can no longer be committed, or are read here
            self._proposed = frozenset()

    def offered(self, entry: BucketEntry, version: int) -> None:
        """This entry is about to be committed on this version. Call it before, and never take it back (R7)."""
        self._proposed |= frozenset(entry.in_sync)
        self._proposed_on = max(self._proposed_on, version)

    def counted(self) -> frozenset[Member]:
        """The largest in-sync set that the metadata may hold by now (R7)."""
        return self._in_sync | self._proposed

    # --- watermarks --------------------------------------------------------------------------------------------

    def watermarks(self, own: Report) -> Watermarks:
        """What is committed now; ``own`` is what the leader's copy has. High and stable never fall."""
        counted = self.counted()
        heard = [self._heard_of(member, own) for member in counted]
        enough = len(counted) >= self.promise.min_insync
        self.high = max(self.high, self._committed(heard, enough))
        self.stable = max(self.stable, min(self.high, min(report.synced for report in heard)))
        return Watermarks(
            self.high,
            self.stable,
            min(report.stages for report in heard),
            min(report.barrier for report in heard),
            enough,
        )

    def _heard_of(self, member: Member, own: Report) -> Report:
        if member.server_id == self.member.server_id:
            return own
        return self._reports.get(member, NOTHING)

    def _committed(self, heard: Collection[Report], enough: bool) -> int:
        """The lowest promise of the counted members (R6); with too few of them the epoch's start at most (R9)."""
        lowest = min(report.promised(self.promise.durability) for report in heard)
        return lowest if enough else min(lowest, self.start)

    @property
    def serving(self) -> bool:
        """Whether readers without a memory are served: nobody saw more than the epoch's start before it (R11)."""
        return self.high >= self.start

    def raise_barrier(self) -> int:
        """A new barrier for strong lookups: answered when all counted members echoed it, so that nobody else led since
        it was asked (R22)."""
        self.barrier += 1
        return self.barrier

    def unconfirmed(self, barrier: int) -> list[Member]:
        """The counted members that have not echoed this barrier."""
        return sorted(
            member
            for member in self.counted()
            if member.server_id != self.member.server_id
            and self._reports.get(member, NOTHING).barrier < barrier
        )

    # --- changing the in-sync set ------------------------------------------------------------------------------

    def proposal(
        self,
        entry: BucketEntry,
        registrations: Registrations,
        *,
        journal_end: int,
        lagging: Collection[int] = (),
        silent: Collection[Member] = (),
    ) -> BucketEntry | None:
        """The entry with one more member, or without one that lags; None if it is fine as it is.

        ``lagging`` names servers that fell behind, the worst first; ``silent`` copies do not join, because nothing was
        heard of them lately: they would lag at once. Say ``offered``, then commit the result on the version of
        ``entry``.
        """
        if entry.epoch != self.epoch or entry.leader != self.member.server_id:
            return None
        joiner = self._joiner(entry, registrations, journal_end, silent)
        if joiner is not None:
            # R9: a newer identity of a server replaces its older one at once.
            others = (one for one in entry.in_sync if one.server_id != joiner.server_id)
            return entry.with_in_sync((*others, joiner))
        leaver = self._leaver(entry, lagging)
        if leaver is not None:
            return entry.with_in_sync(one for one in entry.in_sync if one != leaver)
        return None

    def _joiner(
        self,
        entry: BucketEntry,
        registrations: Registrations,
        journal_end: int,
        silent: Collection[Member],
    ) -> Member | None:
        for member in sorted(self._reports):
            if member in entry.in_sync or member in silent:
                continue
            if self._may_join(member, entry, registrations, journal_end):
                return member
        return None

    def _may_join(
        self, member: Member, entry: BucketEntry, registrations: Registrations, journal_end: int
    ) -> bool:
        return (
            member.server_id != self.member.server_id
            and is_registered(member, entry, registrations, self.promise)
            and self._has_all(self._reports[member], journal_end)
        )

    def _has_all(self, report: Report, journal_end: int) -> bool:
        """R16: all that may be committed, as durable as promised; synced as far as the lake may be; and all stages.
        Below the epoch's start this leader does not know what was committed, or tiered.

        Not synced up to ``high``: under ``os`` that runs ahead of every sync as long as somebody writes, and a copy
        would have to wait for a pause.
        """
        committed, tiered = max(self.high, self.start), max(self.stable, self.start)
        promised = report.promised(self.promise.durability)
        return promised >= committed and report.synced >= tiered and report.stages >= journal_end

    def _leaver(self, entry: BucketEntry, lagging: Collection[int]) -> Member | None:
        if len(entry.in_sync) - 1 < self.promise.min_insync:  # R9: never below min.insync
            return None
        candidates = (
            entry.member_of(server_id) for server_id in lagging if server_id != self.member.server_id
        )
        return next((one for one in candidates if one is not None), None)


def is_registered(
    member: Member, entry: BucketEntry, registrations: Registrations, promise: CopyPromise
) -> bool:
    """Whether the copy is the one that its server has now for this assignment (R4, R19)."""
    registration = registrations.get(member.server_id)
    return (
        registration is not None
        and entry.placement_of(member.server_id) == member.identity.placement
        and registration.holds(member.identity, promise.durability)
    )
