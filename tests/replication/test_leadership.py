"""What a leader counts, commits and proposes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strom.replication.bucket_entry import Assignment, BucketEntry
from strom.replication.divergence import BaseNeeded, EpochEnd, EpochHistory, LogsAgree
from strom.replication.leadership import Leadership, NewerEpoch, OlderEpoch
from strom.replication.member import CopyIdentity, CopyPromise, Member
from strom.replication.pulls import BaseProgress, PullQuestion
from strom.replication.registration import DataDisk, Registration
from strom.replication.reports import Report

GROUP, OS = CopyPromise("group", 2), CopyPromise("os", 2)


def _member(server_id: int, placement: int = 1) -> Member:
    return Member(server_id, CopyIdentity(f"disk {server_id}", placement))


ENTRY = BucketEntry(
    tuple(Assignment(one, 1) for one in (1, 2, 3)),
    (1, 2, 3),
    leader=1,
    incarnation=7,
    epoch=5,
    in_sync=(_member(1), _member(2), _member(3)),
)
SERVERS = {one: Registration(one, 7, (DataDisk(f"disk {one}", 0),)) for one in (1, 2, 3, 4)}


def _leading(
    *in_sync: int, promise: CopyPromise = GROUP, start: int = 10, high: int = 0, version: int = 1
) -> Leadership:
    entry = ENTRY.with_in_sync(_member(one) for one in in_sync or (1, 2, 3))
    return Leadership(entry, version, _member(1), promise, start=start, high=high, stable=0)


def _report(end: int, synced: int | None = None, stages: int = 0, barrier: int = 0) -> Report:
    return Report(end, end if synced is None else synced, stages, barrier)


# --- watermarks ----------------------------------------------------------------------------------------------------


def test_nothing_is_committed_while_a_member_has_not_reported_in_this_epoch() -> None:
    leader = _leading()
    leader.heard(_member(2), _report(20))
    assert leader.watermarks(_report(20)).high == 0
    assert not leader.serving


@pytest.mark.parametrize(("promise", "high"), [(GROUP, 11), (OS, 15)])
def test_high_is_the_lowest_promise_and_stable_the_lowest_synced_end(promise: CopyPromise, high: int) -> None:
    leader = _leading(promise=promise)
    leader.heard(_member(2), _report(18, synced=11))
    leader.heard(_member(3), _report(15, synced=13))
    found = leader.watermarks(_report(20, synced=12))
    assert (found.high, found.stable, found.enough) == (high, 11, True)
    assert leader.serving


def test_watermarks_and_reports_never_go_back() -> None:
    leader = _leading()
    leader.heard(_member(2), _report(15, stages=4, barrier=2))
    leader.heard(_member(3), _report(15, stages=4, barrier=2))
    assert leader.watermarks(_report(15)).high == 15
    leader.heard(_member(2), _report(12, stages=1, barrier=1))
    assert leader.report_of(_member(2)) == _report(15, stages=4, barrier=2)
    leader.entry_read(ENTRY.with_in_sync((*ENTRY.in_sync[:2], _member(3, placement=2))), 2)
    assert leader.watermarks(_report(15)).high == 15


def test_a_report_counts_for_its_identity_only() -> None:
    leader = _leading(1, 2)
    leader.heard(_member(2, placement=9), _report(20))
    assert leader.watermarks(_report(20)).high == 0


def test_with_too_few_members_high_stops_at_the_epochs_start_and_nothing_is_acknowledged() -> None:
    leader = _leading(1)
    found = leader.watermarks(_report(20))
    assert (found.high, found.enough) == (10, False)
    assert leader.serving


def test_a_proposal_counts_until_the_entry_has_moved_on_whatever_was_heard() -> None:
    leader = _leading(1, 2)
    leader.heard(_member(2), _report(20))
    leader.offered(ENTRY, 1)
    assert leader.watermarks(_report(20)).high == 0
    leader.entry_read(ENTRY.with_in_sync(ENTRY.in_sync[:2]), 1)
    assert leader.counted() == frozenset(ENTRY.in_sync), "read again, but not moved"
    leader.entry_read(ENTRY.with_in_sync(ENTRY.in_sync[:2]), 2)
    assert leader.watermarks(_report(20)).high == 20
    leader.entry_read(ENTRY, 1)
    assert leader.counted() == frozenset(ENTRY.in_sync[:2]), "an older entry changes nothing"


def test_an_entry_of_another_epoch_is_not_this_leaders() -> None:
    leader = _leading(1, 2)
    leader.entry_read(replace(ENTRY, epoch=6), 2)
    assert leader.counted() == frozenset(ENTRY.in_sync[:2])


def test_stages_and_barriers_count_when_all_have_them() -> None:
    leader = _leading()
    barrier = leader.raise_barrier()
    leader.heard(_member(2), _report(10, stages=3, barrier=barrier))
    leader.heard(_member(3), _report(10, stages=2))
    found = leader.watermarks(_report(10, stages=5, barrier=barrier))
    assert (found.stages, found.barrier) == (2, 0)
    leader.heard(_member(3), _report(10, stages=5, barrier=barrier))
    found = leader.watermarks(_report(10, stages=5, barrier=barrier))
    assert (found.stages, found.barrier) == (3, barrier)


# --- pulls ---------------------------------------------------------------------------------------------------------

HISTORY = EpochHistory(4, 12, [(2, 3), (5, 10)])


def _question(at: int, before: int, epoch: int = 5, copying: BaseProgress | None = None) -> PullQuestion:
    return PullQuestion(epoch, 1, _member(2), at, before, _report(at), 0, 0, copying)


def test_a_pull_is_judged_by_epochs_and_its_report_taken_only_if_the_logs_agree() -> None:
    leader = _leading()
    for question, verdict in (
        (_question(12, 5, epoch=6), NewerEpoch(6)),
        (_question(12, 5, epoch=4), OlderEpoch()),
        (_question(11, 3), EpochEnd(2, 10)),
        (_question(3, 2), BaseNeeded()),
        (_question(12, 5, copying=BaseProgress()), BaseNeeded()),
    ):
        assert leader.asked(question, HISTORY) == verdict
        assert leader.report_of(_member(2)) is None
    assert leader.asked(_question(12, 5), HISTORY) == LogsAgree()
    assert leader.report_of(_member(2)) == _report(12)


# --- the in-sync set -----------------------------------------------------------------------------------------------


def test_a_follower_joins_with_all_that_may_be_committed_synced_and_all_stages() -> None:
    leader = _leading(1, 2)
    entry = ENTRY.with_in_sync(ENTRY.in_sync[:2])

    def proposal(report: Report) -> BucketEntry | None:
        fresh = _leading(1, 2)
        fresh.heard(_member(3), report)
        return fresh.proposal(entry, SERVERS, journal_end=4)

    assert leader.proposal(entry, SERVERS, journal_end=0) is None, "it has not pulled"
    assert proposal(_report(9, stages=4)) is None
    assert proposal(_report(20, synced=9, stages=4)) is None
    assert proposal(_report(10, stages=3)) is None
    joined = proposal(_report(10, stages=4))
    assert joined is not None
    assert joined.in_sync == ENTRY.in_sync


def test_a_follower_joins_at_high_where_that_is_above_the_epochs_start() -> None:
    leader = _leading(1, 2, high=15)
    entry = ENTRY.with_in_sync(ENTRY.in_sync[:2])
    leader.heard(_member(3), _report(14))
    assert leader.proposal(entry, SERVERS, journal_end=0) is None
    leader.heard(_member(3), _report(15))
    assert leader.proposal(entry, SERVERS, journal_end=0, silent=[_member(3)]) is None
    assert leader.proposal(entry, SERVERS, journal_end=0) == ENTRY


@pytest.mark.parametrize(("report", "joins"), [((25, 12), True), ((25, 11), False), ((24, 24), False)])
def test_under_os_a_follower_joins_synced_as_far_as_the_lake_may_be(
    report: tuple[int, int], joins: bool
) -> None:
    """`high` runs ahead of every sync while somebody writes."""
    leader = _leading(1, 2, promise=OS, start=10)
    leader.heard(_member(2), _report(25, synced=12))
    assert leader.watermarks(_report(25, synced=14))[:2] == (25, 12)
    leader.heard(_member(3), _report(*report))
    entry = ENTRY.with_in_sync(ENTRY.in_sync[:2])
    assert leader.proposal(entry, SERVERS, journal_end=0) == (ENTRY if joins else None)


def test_only_what_is_registered_and_assigned_can_join_and_it_replaces_an_older_identity() -> None:
    leader = _leading()
    newer = Member(3, CopyIdentity("new", 1))
    leader.heard(newer, _report(10))
    assert leader.proposal(ENTRY, SERVERS, journal_end=0) is None
    servers = SERVERS | {3: Registration(3, 8, (DataDisk("new", 0),))}
    joined = leader.proposal(ENTRY, servers, journal_end=0)
    assert joined is not None
    assert joined.in_sync == (_member(1), _member(2), newer)
    again = replace(ENTRY, replicas=(*ENTRY.replicas[:2], Assignment(3, 2)), drawn=2)
    assert leader.proposal(again, servers, journal_end=0) is None, "another assignment"


def test_who_lags_leaves_but_never_below_min_insync_and_never_the_leader() -> None:
    leader = _leading()
    smaller = leader.proposal(ENTRY, SERVERS, journal_end=0, lagging=(1, 3, 2))
    assert smaller is not None
    assert smaller.in_sync == ENTRY.in_sync[:2]
    assert leader.proposal(smaller, SERVERS, journal_end=0, lagging=(2,)) is None
    assert leader.proposal(ENTRY, SERVERS, journal_end=0, lagging=(1, 4)) is None


def test_a_leader_proposes_nothing_on_an_entry_that_is_not_its_own() -> None:
    leader = _leading()
    for other in (replace(ENTRY, epoch=6), replace(ENTRY, leader=2)):
        assert leader.proposal(other, SERVERS, journal_end=0, lagging=(3,)) is None
