"""Bugs for the servers of a cluster, planted one at a time to see that the histories find them.

Each says ``new`` where a module says ``old``. A bug must be able to do harm: that a follower takes late answers (R12)
cannot, since three places refuse them: ``Followership`` and ``FollowingBucket`` look at the same number, and
``PullLoop`` ends the calls of a session with it. The specification, which has none but the first, plants that one.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

from strom.replication import elections, leadership, registration, stage_journal
from strom.server.membership import candidacy, failover, recovery
from strom.server.replicas import (
    following,
    leading,
    proposals,
    pull_answers,
    stage_mirroring,
)


class ClusterMutant(NamedTuple):
    """One bug."""

    name: str
    module: ModuleType
    old: str
    new: str
    shown_by: str
    """The script of a history that finds it."""


MUTANTS = (
    ClusterMutant(
        "high ignores the followers",
        leadership,
        "lowest = min(report",
        "lowest = max(report",
        shown_by="leader-out-of-reach",
    ),
    ClusterMutant(
        "too few members acknowledge all the same",
        leadership,
        "return lowest if enough else min(lowest, self.start)",
        "return max(own.end for own in heard)",
        shown_by="leader-out-of-reach",
    ),
    ClusterMutant(
        "proposals are not counted",
        leadership,
        "return self._in_sync | self._proposed",
        "return self._in_sync",
        shown_by="joined-unheard",
    ),
    ClusterMutant(
        "a copy joins with nothing",
        leadership,
        "return promised >= committed and report.synced >= tiered and report.stages >= journal_end",
        "return True",
        shown_by="joins-with-too-little",
    ),
    ClusterMutant(
        "stages do not matter for joining",
        leadership,
        "report.synced >= tiered and report.stages >= journal_end",
        "report.synced >= tiered",
        shown_by="joins-without-stages",
    ),
    ClusterMutant(
        "the set shrinks below min.insync",
        leadership,
        "if len(entry.in_sync) - 1 < self.promise.min_insync:",
        "if len(entry.in_sync) < 2:",
        shown_by="leader-out-of-reach",
    ),
    ClusterMutant(
        "logs are not compared",
        leadership,
        "verdict = compare(history, question.at, question.epoch_before)",
        "verdict = LogsAgree()",
        shown_by="reported-before-compared",
    ),
    ClusterMutant(
        "the leader's own copy is not counted",
        leadership,
        "            return own\n",
        "            return own._replace(end=1 << 40, synced=1 << 40)\n",
        shown_by="leader-alone",
    ),
    ClusterMutant(
        "anybody may be elected",
        elections,
        "able = {one.server_id for one in sound_members(entry, registrations, promise)} & set(alive)",
        "able = set(entry.servers) & set(alive)",
        shown_by="last-one-loses-its-disk",
    ),
    ClusterMutant(
        "a lost copy may lead",
        elections,
        "return tuple(one for one in entry.in_sync if is_registered(one, entry, registrations, promise))",
        "return tuple(entry.in_sync)",
        shown_by="lost-what-was-not-synced",
    ),
    ClusterMutant(
        "an epoch is led twice",
        elections,
        "        epoch=entry.epoch + 1,\n        in_sync=_without",
        "        epoch=entry.epoch,\n        in_sync=_without",
        shown_by="stage-of-nobody",
    ),
    ClusterMutant(
        "the leader may be another process",
        elections,
        "entry.leader in alive and registration is not None and registration.incarnation == entry.incarnation",
        "entry.leader in alive and registration is not None",
        shown_by="lost-what-was-not-synced",
    ),
    ClusterMutant(
        "the dead leave though min.insync needs them",
        elections,
        "[: max(spare, 0)]",
        "",
        shown_by="last-one-loses-its-disk",
    ),
    ClusterMutant(
        "who lost power last leads",
        elections,
        "return max(sorted(copies), key=lambda one: (copies[one].last_epoch, copies[one].end), default=None)",
        "return min(sorted(copies), key=lambda one: (copies[one].last_epoch, copies[one].end), default=None)",
        shown_by="one-does-not-answer",
    ),
    ClusterMutant(
        "not all are waited for",
        elections,
        "if best is None or any(one.server_id not in answered for one in kept):",
        "if best is None:",
        shown_by="one-does-not-answer",
    ),
    ClusterMutant(
        "lineages do not matter",
        registration,
        'return bool(lineages) and (durability == "group" or lineages[0] == identity.lineage)',
        "return bool(lineages)",
        shown_by="lost-what-was-not-synced",
    ),
    ClusterMutant(
        "a report counts before the logs are compared",
        leadership,
        "        if isinstance(verdict, LogsAgree):\n",
        "        if True:\n",
        shown_by="reported-before-compared",
    ),
    ClusterMutant(
        "an empty journal is not told",
        stage_journal,
        "        if holds_any:\n            self.position = UNREAD\n",
        "        if False:\n            self.position = UNREAD\n",
        shown_by="stage-of-nobody",
    ),
    ClusterMutant(
        "nothing is dropped",
        stage_journal,
        "dropped |= {stage: None for stage in held if stage not in self._mirrored}",
        "pass",
        shown_by="stage-of-nobody",
    ),
    ClusterMutant(
        "buckets are looked at once",
        failover,
        "due | gone | self._leaderless",
        "due | gone",
        shown_by="last-one-loses-its-disk",
    ),
    ClusterMutant(
        "nobody is elected",
        failover,
        "elected, leaderless = await self._all(commands.elect_leaders, due | gone | self._leaderless)",
        "elected, leaderless = 0, []",
        shown_by="lost-what-was-not-synced",
    ),
    ClusterMutant(
        "moves do not advance",
        failover,
        "        if self._moving:\n            await",
        "        if False:\n            await",
        shown_by="moved-once",
    ),
    ClusterMutant(
        "after a power loss of all nothing happens",
        failover,
        "        if leaderless:\n            await self._recovery",
        "        if False:\n            await self._recovery",
        shown_by="one-does-not-answer",
    ),
    ClusterMutant(
        "power recovery asks nobody",
        recovery,
        "                if server_id in alive:",
        "                if server_id in ():",
        shown_by="one-does-not-answer",
    ),
    ClusterMutant(
        "nobody takes over",
        candidacy,
        "            await self._take_over(catalog)",
        "            pass",
        shown_by="moved-once",
    ),
    ClusterMutant(
        "acknowledged as soon as the leader has it",
        leading,
        "self.tablet.raise_high(marks.high, marks.stable)",
        "self.tablet.raise_high(own.end, marks.stable)",
        shown_by="leader-out-of-reach",
    ),
    ClusterMutant(
        "a follower takes the watermark of its leader",
        following,
        "tablet.raise_high(min(high, tablet.end_offset), stable)",
        "tablet.raise_high(tablet.end_offset, stable)",
        shown_by="one-is-ahead",
    ),
    ClusterMutant(
        "a follower does not cut",
        following,
        "lambda tablet: tablet.copy.cut_to(offset, lost=lost)",
        "lambda tablet: tablet.end_offset",
        shown_by="one-is-ahead",
    ),
    ClusterMutant(
        "a follower is never synced",
        following,
        '            if tablet.durability == "group":\n                self._needs',
        "            if False:\n                self._needs",
        shown_by="leader-alone",
    ),
    ClusterMutant(
        "the watermark is not told",
        pull_answers,
        "            or tablet.high_watermark > self.high\n",
        "",
        shown_by="stage-of-nobody",
    ),
    ClusterMutant(
        "a seal is acknowledged by the leader alone",
        leading,
        "waits.seals.advance(marks.stages)",
        "waits.seals.advance(self.journal.end)",
        shown_by="sealed-by-one",
    ),
    ClusterMutant(
        "nobody joins again",
        proposals,
        "            if proposal is not None:",
        "            if proposal is not None and len(proposal.in_sync) < len(entry.in_sync):",
        shown_by="leader-alone",
    ),
    ClusterMutant(
        "stages are not installed",
        stage_mirroring,
        "        for stage_id in one.step.install:",
        "        for stage_id in ():",
        shown_by="joins-without-stages",
    ),
)
"""None of them may pass."""
