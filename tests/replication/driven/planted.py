"""Bugs planted in ``strom.replication``, each with the seed of a driven history that shows it.

A bug replaces small functions of the real code. The names are the specification's where the rule is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest import mock

from replication.driven import translation
from strom.replication import base_copy, elections, followership, leadership, role, stage_journal
from strom.replication.bucket_entry import Assignment, BucketEntry
from strom.replication.divergence import EpochEnd, EpochHistory, LogsAgree
from strom.replication.elections import EntryChange
from strom.replication.followership import Followership
from strom.replication.leadership import Leadership
from strom.replication.member import CopyIdentity, Member
from strom.replication.pulls import BasePiece
from strom.replication.registration import Registration
from strom.replication.reports import NOTHING, Report
from strom.replication.stage_journal import JournalRead, StageJournal, StageMirror

Patch = tuple[Any, str, Any]


class Planted(NamedTuple):
    """A bug: what it breaks, what it replaces, and a history that shows it."""

    rule: str
    patches: tuple[Patch, ...]
    seed: int


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The real code with one bug in it."""
    with ExitStack() as stack:
        for owner, attribute, replacement in PLANTED[name].patches:
            stack.enter_context(mock.patch.object(owner, attribute, replacement))
        translation.entry_of.cache_clear()
        yield


def changed(function: Callable[..., Any], change: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose result ``change`` replaces."""

    def replaced(*arguments: Any, **named: Any) -> Any:
        return change(function(*arguments, **named), *arguments)

    return replaced


# --- watermarks --------------------------------------------------------------------------------------------------


def _majority(self: Leadership, heard: list[Report], enough: bool) -> int:
    promises = sorted(report.promised(self.promise.durability) for report in heard)
    found = promises[(len(promises) - 1) // 2]
    return found if enough else min(found, self.start)


def _without_own(self: Leadership, member: Member, own: Report) -> Report:
    if member == self.member:
        return Report(own.end, own.end, own.stages, own.barrier)
    return self._reports.get(member, NOTHING)


def _own_report(self: Leadership, member: Member, own: Report) -> Report:
    """What a member that has not pulled yet is taken for: the leader's equal, as far as the epoch's start."""
    if member.server_id == self.member.server_id:
        return own
    return self._reports.get(member, Report(self.start, self.start, 0, 0))


def _of_any_identity(self: Leadership, member: Member, own: Report) -> Report:
    if member.server_id == self.member.server_id:
        return own
    return _best_report_of(self, member.server_id) or NOTHING


def _best_report_of(self: Leadership, server_id: int) -> Report | None:
    reports = [report for one, report in self._reports.items() if one.server_id == server_id]
    return max(reports, key=lambda report: (report.synced, report.end), default=None)


WATERMARKS = {
    "hw-leader-end": Planted(
        "R6: acknowledged at the leader's end",
        ((Leadership, "_committed", lambda self, heard, enough: max(report.end for report in heard)),),
        1,
    ),
    "hw-of-majority": Planted(
        "R6: the high watermark is what a majority has", ((Leadership, "_committed", _majority),), 1
    ),
    "hw-of-unsynced": Planted(
        "R6: under group a report counts before it is synced",
        ((Report, "promised", lambda self, durability: self.end),),
        7,
    ),
    "hw-without-own-sync": Planted(
        "R6: under group the leader's own end counts before it is synced",
        ((Leadership, "_heard_of", _without_own),),
        13,
    ),
    "hw-of-silent-members": Planted(
        "R5: who has not pulled in this epoch counts as if it had all of the epoch's start",
        ((Leadership, "_heard_of", _own_report),),
        6,
    ),
    "hw-of-known-isr": Planted(
        "R7: a join under way is not counted yet",
        ((Leadership, "counted", lambda self: self._in_sync),),
        7,
    ),
    "proposal-forgotten": Planted(
        "R7: a proposal is given up when the entry is read again, whether it moved or not",
        ((Leadership, "entry_read", changed(Leadership.entry_read, lambda _, self, *__: _forget(self))),),
        7,
    ),
    "older-entry-taken": Planted(
        "R7: an entry that was read earlier replaces a newer one",
        ((Leadership, "entry_read", lambda self, entry, version: _take(self, entry)),),
        7,
    ),
    "report-before-match": Planted(
        "R5: a report counts before the logs were compared",
        ((Leadership, "asked", lambda self, question, history: _heard_first(self, question, history)),),
        4,
    ),
    "report-of-an-older-epoch": Planted(
        "R5: a follower of an earlier epoch is heard",
        ((Leadership, "asked", lambda self, question, history: _of_any_epoch(self, question, history)),),
        822,
    ),
    "report-of-any-identity": Planted(
        "R5: a report counts for the server, whatever its copy is",
        (
            (Leadership, "_heard_of", _of_any_identity),
            (Leadership, "_joiner", lambda *arguments: _joiner_of_any_identity(*arguments)),
        ),
        527,
    ),
    "ack-below-min-insync": Planted(
        "R9: acknowledged although fewer than min.insync copies are in sync",
        ((Leadership, "watermarks", changed(Leadership.watermarks, lambda w, *_: w._replace(enough=True))),),
        26,
    ),
    "seal-acked-by-leader": Planted(
        "R14: a seal is acknowledged when the leader has it",
        (
            (
                Leadership,
                "watermarks",
                changed(Leadership.watermarks, lambda w, _, own: w._replace(stages=own.stages)),
            ),
        ),
        1,
    ),
    "strong-without-barrier": Planted(
        "R22: a strong lookup is answered by whoever believes to lead",
        (
            (
                Leadership,
                "watermarks",
                changed(Leadership.watermarks, lambda w, _, own: w._replace(barrier=own.barrier)),
            ),
        ),
        443,
    ),
    "lake-to-hw": Planted(
        "R23: stable is the high watermark",
        (
            (
                Leadership,
                "watermarks",
                changed(Leadership.watermarks, lambda w, *_: w._replace(stable=w.high)),
            ),
        ),
        185,
    ),
    "read-before-epoch-start": Planted(
        "R11: a new leader serves what it knows to be committed",
        ((Leadership, "serving", property(lambda self: True)),),
        2,
    ),
}


def _forget(self: Leadership) -> None:
    self._proposed = frozenset()


def _take(self: Leadership, entry: Any) -> None:
    self._in_sync, self._proposed = frozenset(entry.in_sync), frozenset()


_asked = Leadership.asked


def _heard_first(self: Leadership, question: Any, history: EpochHistory) -> Any:
    if question.epoch == self.epoch:
        self.heard(question.member, question.report)
    return _asked(self, question, history)


def _of_any_epoch(self: Leadership, question: Any, history: EpochHistory) -> Any:
    if question.epoch < self.epoch:
        question = replace(question, epoch=self.epoch)
    return _asked(self, question, history)


# --- the in-sync set ---------------------------------------------------------------------------------------------


def _registered_members(self: Leadership, entry: Any, registrations: Any) -> Iterator[Member]:
    """The copies of all other servers, as they are registered, that are not in sync."""
    for server_id, placement in entry.replicas:
        registration = registrations[server_id]
        lineage = registration.disks[0].lineage if self.promise.durability == "os" else 0
        member = Member(server_id, CopyIdentity(registration.disks[0].disk, placement, lineage))
        if member not in entry.in_sync and server_id != self.member.server_id:
            yield member


def _unreported(self: Leadership, entry: Any, registrations: Any, *_: Any) -> Member | None:
    return next(_registered_members(self, entry, registrations), None)


def _joiner_of_any_identity(
    self: Leadership, entry: Any, registrations: Any, journal_end: int, _: Any
) -> Member | None:
    for member in _registered_members(self, entry, registrations):
        report = _best_report_of(self, member.server_id)
        if report is not None and self._has_all(report, journal_end):
            return member
    return None


def _registered_anywhere(member: Member, entry: Any, registrations: Any, promise: Any) -> bool:
    holds = registrations[member.server_id].holds(member.identity, promise.durability)
    return bool(holds and entry.placement_of(member.server_id))


def _same_disk(self: Registration, identity: CopyIdentity, durability: str) -> bool:
    return self.has_disk(identity.disk)


def _leaver(self: Leadership, entry: Any, lagging: Any) -> Member | None:
    candidates = (entry.member_of(one) for one in lagging if one != self.member.server_id)
    return next((one for one in candidates if one is not None), None)


def _has_all(**needs: Callable[..., bool]) -> Callable[..., bool]:
    def has_all(self: Leadership, report: Report, journal_end: int) -> bool:
        promised, start = report.promised(self.promise.durability), self.start
        rules = {
            "rows": lambda *_: promised >= max(self.high, start),
            "synced": lambda *_: report.synced >= max(self.stable, start),
            "stages": lambda *_: report.stages >= journal_end,
        }
        return all(rule(self, report) for rule in (rules | needs).values())

    return has_all


_identity_of = translation.member.identity_of


def _first_placement(disk: str, placement: int, lineage: int, durability: Any) -> CopyIdentity:
    return _identity_of(disk, 1, lineage, durability)


MEMBERS = {
    "join-without-report": Planted(
        "R16: a server joins that has not pulled in this epoch",
        ((Leadership, "_joiner", _unreported),),
        2,
    ),
    "join-at-hw": Planted(
        "R16: joins at the watermark that the new leader knows, not at its epoch's start",
        (
            (
                Leadership,
                "_has_all",
                _has_all(
                    rows=lambda self, report: report.promised(self.promise.durability) >= self.high,
                    synced=lambda self, report: report.synced >= self.stable,
                ),
            ),
        ),
        17,
    ),
    "join-unsynced": Planted(
        "R16: joins with a log that is in memory only",
        (
            (
                Leadership,
                "_has_all",
                _has_all(
                    rows=lambda self, report: report.end >= max(self.high, self.start),
                    synced=lambda *_: True,
                ),
            ),
        ),
        106,
    ),
    "join-without-stages": Planted(
        "R16: joins without the stages",
        ((Leadership, "_has_all", _has_all(stages=lambda self, report: True)),),
        35,
    ),
    "isr-below-min-insync": Planted(
        "R9: the in-sync set shrinks below min.insync", ((Leadership, "_leaver", _leaver),), 43
    ),
    "unclean-os-counts": Planted(
        "R4: under os a copy that lost its page cache stays in sync",
        ((Registration, "holds", _same_disk),),
        42,
    ),
    "replaced-disk-counts": Planted(
        "R4: a server with a new disk stays in sync",
        ((Registration, "holds", lambda self, identity, durability: True),),
        10,
    ),
    "placement-not-named": Planted(
        "R19: a server that was removed and added again is taken for the copy it had",
        (
            (leadership, "is_registered", _registered_anywhere),
            (elections, "is_registered", _registered_anywhere),
            (translation.member, "identity_of", _first_placement),
        ),
        527,
    ),
    "placement-drawn-again": Planted(
        "R19: a server that is added again gets the placement that it had",
        (
            (
                elections,
                "_added",
                lambda entry, servers: replace(
                    entry, replicas=(*entry.replicas, *(Assignment(one, entry.drawn) for one in servers))
                ),
            ),
        ),
        527,
    ),
}


# --- elections ---------------------------------------------------------------------------------------------------


def _any_candidate(entry: Any, registrations: Any, alive: Any, promise: Any) -> list[int]:
    return [one for one in (*entry.wanted, *entry.servers) if one in entry.servers and one in alive]


_led_by_one = elections._led_by


def _led_by_any(leader: int, entry: Any, registrations: Any, alive: Any, promise: Any) -> EntryChange:
    registration = registrations[leader]
    lineage = registration.disks[0].lineage if promise.durability == "os" else 0
    identity = CopyIdentity(registration.disks[0].disk, entry.placement_of(leader), lineage)
    others = [one for one in entry.in_sync if one.server_id != leader]
    outside = entry.with_in_sync((*others, Member(leader, identity)))
    return _led_by_one(leader, outside, registrations, alive, promise)


def _all_gone(entry: Any, leader: int, registrations: Any, alive: Any, promise: Any) -> Any:
    return tuple(one for one in entry.in_sync if one.server_id == leader or one.server_id in alive)


def _resting_on_nothing(change: EntryChange | None, *_: Any) -> EntryChange | None:
    return None if change is None else EntryChange(change.entry, ())


def _same_epoch(change: EntryChange, leader: int, entry: Any, *_: Any) -> EntryChange:
    return EntryChange(replace(change.entry, epoch=entry.epoch), change.rests_on)


def _recover(**broken: bool) -> Callable[..., EntryChange | None]:
    def recover(entry: Any, registrations: Any, found: Any, promise: Any) -> EntryChange | None:
        if promise.durability != "os":
            return None
        if elections.sound_members(entry, registrations, promise) and not broken.get("sound"):
            return None
        answered = elections.answering(entry, registrations, found, promise)
        kept = [one.server_id for one in entry.in_sync if elections._has_kept_disk(one, entry, registrations)]
        among = answered if broken.get("anybody") else {one: answered[one] for one in kept if one in answered}
        waits = any(one not in answered for one in kept) and not broken.get("first")
        best = min(among, default=None) if broken.get("first") else elections._most_complete(among)
        if best is None or waits or not kept:
            return None
        return elections._declared(best, answered[best], entry, registrations)

    return recover


ELECTIONS = {
    "elect-outside-isr": Planted(
        "R4: any live replica may lead",
        ((elections, "_candidates", _any_candidate), (elections, "_led_by", _led_by_any)),
        2,
    ),
    "election-below-min-insync": Planted(
        "R9: an election removes all that are gone", ((elections, "_without_gone", _all_gone),), 29
    ),
    "epoch-given-twice": Planted(
        "R3: a new leader goes on in the epoch of the last one",
        ((elections, "_led_by", changed(elections._led_by, _same_epoch)),),
        1,
    ),
    "removed-before-joined": Planted(
        "R19: the old replica goes before the new one is in sync",
        ((elections, "_joined", lambda entry, registrations, promise: True),),
        92,
    ),
    "recovery-on-old-registrations": Planted(
        "R10: a loss is declared without requiring the registrations that show it",
        (
            (elections, "_declared", changed(elections._declared, _resting_on_nothing)),
            (elections, "answering", lambda entry, registrations, found, promise: dict(found)),
        ),
        26,
    ),
    "recover-from-all": Planted(
        "R10: after a power loss of all the highest (epoch, end) of any replica leads, in sync or not",
        ((elections, "recover", _recover(anybody=True)),),
        860,
    ),
    "recover-first-come": Planted(
        "R10: after a power loss of all the first to return leads",
        ((elections, "recover", _recover(first=True, anybody=True)),),
        69,
    ),
    "loss-not-counted": Planted(
        "R10: a loss is not told in the entry",
        (
            (
                elections,
                "_declared",
                changed(
                    elections._declared,
                    lambda change, leader, copy, entry, *_: EntryChange(
                        replace(change.entry, losses=entry.losses), change.rests_on
                    ),
                ),
            ),
        ),
        42,
    ),
    "restart-keeps-epoch": Planted(
        "R3: a restarted leader goes on in its epoch",
        (
            (role, "is_mine", lambda entry, standing: entry.leader == standing.server_id),
            (elections, "has_leader", lambda entry, registrations, alive: entry.leader in alive),
        ),
        9,
    ),
    "loss-not-heard": Planted(
        "R10: a copy keeps its watermark after a declared loss",
        (
            (
                role,
                "role_in",
                changed(role.role_in, lambda change, *_: change._replace(forget_watermarks=False)),
            ),
        ),
        277,
    ),
}


# --- following ---------------------------------------------------------------------------------------------------


def _no_comparison(history: EpochHistory, at: int, epoch_before: int) -> Any:
    if history.log_start <= at <= history.end:
        return LogsAgree()
    return leadership.BaseNeeded()


def _cut_to_leader(history: EpochHistory, leader: EpochEnd) -> int | None:
    return None if history.end_of_epoch(leader.epoch) is None else min(leader.end, history.end)


def _cut_to_own(history: EpochHistory, leader: EpochEnd) -> int | None:
    mine = history.end_of_epoch(leader.epoch)
    return None if mine is None else mine.end


def _end_of_next_epoch(self: EpochHistory, epoch: int) -> EpochEnd | None:
    return _end_of_epoch(self, epoch + 1)


_end_of_epoch = EpochHistory.end_of_epoch
_take_answer = Followership.take


def _any_question(self: Followership, answer: Any, history: Any) -> Any:
    self._waiting_for = answer.ask
    return _take_answer(self, answer, history)


def _any_epoch(self: Followership, answer: Any, history: Any) -> Any:
    return _take_answer(self, replace(answer, epoch=self.epoch), history)


def _again(self: Followership, answer: Any, history: Any) -> Any:
    """The answer is taken as often as it comes."""
    waiting = self._waiting_for
    step = _take_answer(self, answer, history)
    self._waiting_for = waiting
    return step


def _unsynced_stages(report: Report, self: Followership, *_: Any) -> Report:
    return report._replace(stages=self.stages.position)


def _fits_any_base(self: Followership, piece: BasePiece) -> bool:
    return self.copying is not None and self.copying[1:] == (piece.file, piece.position)


def _any_base(asked: Any, held: Any, bytes_max: int) -> Any:
    if asked is None or asked.offset < 0 or asked.file >= len(held.sizes):
        return held
    return BasePiece(held.offset, asked.file, asked.position, 1)


_mirror = StageMirror.take
_read = StageJournal.read
_drop = StageJournal.drop


def _dropping_first(self: StageMirror, read: JournalRead, held: Any) -> Any:
    return _mirror(self, read._replace(end=read.position), held)


def _never_even(self: StageMirror, read: JournalRead, held: Any) -> Any:
    self._even = True
    return _mirror(self, read, held)


def _forgotten_drops(self: StageJournal, position: int, began: int, count_max: int) -> JournalRead:
    return _read(self, position, 1 << 60, count_max)


def _position_ahead(read: JournalRead, *_: Any) -> JournalRead:
    return read._replace(position=read.end)


FOLLOWING = {
    "no-diverging-check": Planted(
        "R8: a follower goes on at its end without comparing epochs",
        ((leadership, "compare", _no_comparison),),
        1,
    ),
    "cut-to-the-leaders-end-only": Planted(
        "R8: a follower cuts to where the leader's epoch ends, though its own ended earlier",
        ((followership, "cut_for", _cut_to_leader),),
        130,
    ),
    "cut-to-the-own-end-only": Planted(
        "R8: a follower cuts to where its own epoch ends, though the leader's ended earlier",
        ((followership, "cut_for", _cut_to_own),),
        4,
    ),
    "end-of-another-epoch": Planted(
        "R8: a leader tells where the next epoch ends",
        ((EpochHistory, "end_of_epoch", _end_of_next_epoch),),
        4,
    ),
    "answer-to-another-question": Planted(
        "R12: an answer is taken although the follower has moved on",
        ((Followership, "take", _any_question),),
        2,
    ),
    "answer-taken-twice": Planted(
        "R12: an answer that comes twice is taken twice", ((Followership, "take", _again),), 8
    ),
    "answer-of-another-epoch": Planted(
        "R12: an answer of an earlier leader is taken",
        (
            (
                Followership,
                "take",
                lambda self, answer, history: _any_question_of_any_epoch(self, answer, history),
            ),
        ),
        1,
    ),
    "stages-unsynced": Planted(
        "R14: under group a follower reports stages before they are synced",
        ((Followership, "report", changed(Followership.report, _unsynced_stages)),),
        7,
    ),
    "stages-dropped-first": Planted(
        "R15: a follower that begins again drops what it has not mirrored yet",
        ((StageMirror, "take", _dropping_first),),
        10,
    ),
    "journal-position-ahead": Planted(
        "R15: a follower takes the end of the journal for what it has read",
        ((StageJournal, "read", changed(StageJournal.read, _position_ahead)),),
        1,
    ),
    "journal-durable-at-once": Planted(
        "R14: a new leader takes the stages it holds for synced",
        (
            (
                stage_journal.StageJournal,
                "__init__",
                changed(StageJournal.__init__, lambda _, self, *__: setattr(self, "durable", self.end)),
            ),
        ),
        124,
    ),
    "copy-mixes-bases": Planted(
        "R18: pieces of two bases are put together",
        ((Followership, "_fits", _fits_any_base), (base_copy, "next_of_base", _any_base)),
        167,
    ),
}


# --- leaders that are cut off ------------------------------------------------------------------------------------


def _anybody(*arguments: Any) -> EntryChange | None:
    with (
        mock.patch.object(elections, "_candidates", _any_candidate),
        mock.patch.object(elections, "_led_by", _led_by_any),
    ):
        return _replace_cut_off(*arguments)


def _in_its_epoch(change: EntryChange | None, entry: BucketEntry, *_: Any) -> EntryChange | None:
    return change and replace(change, entry=replace(change.entry, epoch=entry.epoch))


_replace_cut_off = elections.replace_cut_off
CUT_OFF = {
    "cut-off-leader-stays": Planted(
        "R21: a leader that is cut off from its followers goes on leading",
        ((elections, "replace_cut_off", lambda *_: None),),
        1,
    ),
    "cut-off-replaced-by-anybody": Planted(
        "R21: who reaches the others replaces a leader that is cut off, in sync or not",
        ((elections, "replace_cut_off", _anybody),),
        2,
    ),
    "cut-off-leader-keeps-its-epoch": Planted(
        "R21: a leader that is cut off is replaced in its epoch",
        ((elections, "replace_cut_off", changed(elections.replace_cut_off, _in_its_epoch)),),
        7,
    ),
}
"""Shown by histories of a ``DrivenCutOffWorld``."""


def _any_question_of_any_epoch(self: Followership, answer: Any, history: Any) -> Any:
    self._waiting_for = answer.ask
    return _any_epoch(self, answer, history)


PLANTED = {**WATERMARKS, **MEMBERS, **ELECTIONS, **FOLLOWING, **CUT_OFF}
