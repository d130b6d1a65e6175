"""Bugs for the servers of a cluster, planted one at a time to see that the histories find them.

Each says ``new`` where a module says ``old``.
"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

from strom.replication import elections, followership, leadership, registration, stage_journal
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
    seed: int | None = None
    """Of a history that finds it; None: none is known, so all of the suite's are tried."""


MUTANTS = (
    ClusterMutant(
        "high ignores the followers", leadership, "lowest = min(report", "lowest = max(report", seed=138
    ),
    ClusterMutant(
        "too few members acknowledge all the same",
        leadership,
        "return lowest if enough else min(lowest, self.start)",
        "return max(own.end for own in heard)",
        seed=138,
    ),
    ClusterMutant(
        "proposals are not counted",
        leadership,
        "return self._in_sync | self._proposed",
        "return self._in_sync",
    ),
    ClusterMutant(
        "a copy joins with nothing",
        leadership,
        "return promised >= committed and report.synced >= tiered and report.stages >= journal_end",
        "return True",
    ),
    ClusterMutant(
        "stages do not matter for joining",
        leadership,
        "report.synced >= tiered and report.stages >= journal_end",
        "report.synced >= tiered",
    ),
    ClusterMutant(
        "the set shrinks below min.insync",
        leadership,
        "if len(entry.in_sync) - 1 < self.promise.min_insync:",
        "if len(entry.in_sync) < 2:",
    ),
    ClusterMutant(
        "logs are not compared",
        leadership,
        "verdict = compare(history, question.at, question.epoch_before)",
        "verdict = LogsAgree()",
        seed=49,
    ),
    ClusterMutant(
        "the leader's own copy is not counted",
        leadership,
        "            return own\n",
        "            return own._replace(end=1 << 40, synced=1 << 40)\n",
        seed=119,
    ),
    ClusterMutant(
        "anybody may be elected",
        elections,
        "able = {one.server_id for one in sound_members(entry, registrations, promise)} & set(alive)",
        "able = set(entry.servers) & set(alive)",
        seed=30,
    ),
    ClusterMutant(
        "a lost copy may lead",
        elections,
        "return tuple(one for one in entry.in_sync if is_registered(one, entry, registrations, promise))",
        "return tuple(entry.in_sync)",
        seed=31,
    ),
    ClusterMutant(
        "an epoch is led twice",
        elections,
        "        epoch=entry.epoch + 1,\n        in_sync=_without",
        "        epoch=entry.epoch,\n        in_sync=_without",
        seed=11,
    ),
    ClusterMutant(
        "the leader may be another process",
        elections,
        "entry.leader in alive and registration is not None and registration.incarnation == entry.incarnation",
        "entry.leader in alive and registration is not None",
        seed=5,
    ),
    ClusterMutant("the dead leave though min.insync needs them", elections, "[: max(spare, 0)]", ""),
    ClusterMutant(
        "who lost power last leads",
        elections,
        "return max(sorted(copies), key=lambda one: (copies[one].last_epoch, copies[one].end), default=None)",
        "return min(sorted(copies), key=lambda one: (copies[one].last_epoch, copies[one].end), default=None)",
        seed=0,
    ),
    ClusterMutant(
        "not all are waited for",
        elections,
        "if best is None or any(one.server_id not in answered for one in kept):",
        "if best is None:",
    ),
    ClusterMutant(
        "lineages do not matter",
        registration,
        'return bool(lineages) and (durability == "group" or lineages[0] == identity.lineage)',
        "return bool(lineages)",
    ),
    ClusterMutant(
        "late answers are taken",
        followership,
        "if answer.epoch != self.epoch or answer.ask != self._waiting_for or not self._waiting_for:",
        "if answer.epoch != self.epoch:",
    ),
    ClusterMutant(
        "an empty journal is not told",
        stage_journal,
        "        if holds_any:\n            self.position = UNREAD\n",
        "        if False:\n            self.position = UNREAD\n",
    ),
    ClusterMutant(
        "nothing is dropped",
        stage_journal,
        "dropped |= {stage: None for stage in held if stage not in self._mirrored}",
        "pass",
    ),
    ClusterMutant("buckets are looked at once", failover, "due | gone | self._leaderless", "due | gone"),
    ClusterMutant(
        "nobody is elected",
        failover,
        "elected, leaderless = await self._all(commands.elect_leaders, due | gone | self._leaderless)",
        "elected, leaderless = 0, []",
        seed=11,
    ),
    ClusterMutant(
        "moves do not advance",
        failover,
        "        if self._moving:\n            await",
        "        if False:\n            await",
    ),
    ClusterMutant(
        "after a power loss of all nothing happens",
        failover,
        "        if leaderless:\n            await self._recovery",
        "        if False:\n            await self._recovery",
        seed=0,
    ),
    ClusterMutant(
        "power recovery asks nobody",
        recovery,
        "                if server_id in alive:",
        "                if server_id in ():",
        seed=0,
    ),
    ClusterMutant(
        "nobody takes over",
        candidacy,
        "            await self._take_over(catalog)",
        "            pass",
        seed=0,
    ),
    ClusterMutant(
        "acknowledged as soon as the leader has it",
        leading,
        "self.tablet.raise_high(marks.high, marks.stable)",
        "self.tablet.raise_high(own.end, marks.stable)",
        seed=225,
    ),
    ClusterMutant(
        "a follower takes the watermark of its leader",
        following,
        "tablet.raise_high(min(high, tablet.end_offset), stable)",
        "tablet.raise_high(tablet.end_offset, stable)",
        seed=138,
    ),
    ClusterMutant(
        "a follower does not cut",
        following,
        "lambda tablet: tablet.copy.cut_to(offset, lost=lost)",
        "lambda tablet: tablet.end_offset",
        seed=49,
    ),
    ClusterMutant(
        "a follower is never synced",
        following,
        '            if tablet.durability == "group":\n                self._needs',
        "            if False:\n                self._needs",
        seed=1,
    ),
    ClusterMutant(
        "the watermark is not told",
        pull_answers,
        "            or tablet.high_watermark > self.high\n",
        "",
        seed=11,
    ),
    ClusterMutant(
        "a seal is acknowledged by the leader alone",
        leading,
        "waits.seals.advance(marks.stages)",
        "waits.seals.advance(self.journal.end)",
    ),
    ClusterMutant(
        "nobody joins again",
        proposals,
        "            if proposal is not None:",
        "            if proposal is not None and len(proposal.in_sync) < len(entry.in_sync):",
        seed=11,
    ),
    ClusterMutant(
        "stages are not installed",
        stage_mirroring,
        "        for stage_id in one.step.install:",
        "        for stage_id in ():",
        seed=18,
    ),
)
"""None of them may pass: those that the suite tries stand first."""
