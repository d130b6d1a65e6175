"""Which role an entry gives to a server."""

from __future__ import annotations

from dataclasses import replace

from strom.replication.bucket_entry import Assignment, BucketEntry
from strom.replication.member import CopyIdentity, Member
from strom.replication.role import (
    FollowEpoch,
    KeepRole,
    LeadEpoch,
    NoCopy,
    RoleStep,
    Standing,
    StepDown,
    role_in,
)

ENTRY = BucketEntry(
    (Assignment(1, 1), Assignment(2, 1)), (1, 2), 1, 7, 5, (Member(1, CopyIdentity("d", 1)),), losses=2
)
LEADER = Standing(server_id=1, incarnation=7, placement=1, losses=2)
FOLLOWER = Standing(server_id=2, incarnation=9, placement=1, losses=2)


def _step(standing: Standing, entry: BucketEntry = ENTRY) -> RoleStep:
    return role_in(entry, standing).step


def test_the_process_that_the_entry_names_leads_each_epoch_once() -> None:
    assert _step(LEADER) == LeadEpoch(5)
    assert _step(LEADER._replace(led=5, leading=True)) == KeepRole()
    assert _step(LEADER._replace(led=5, leading=False)) == KeepRole()
    assert _step(LEADER._replace(led=4, leading=True)) == LeadEpoch(5)


def test_nobody_leads_an_epoch_below_one_that_a_pull_told_of() -> None:
    assert _step(LEADER._replace(heard=6)) == KeepRole()
    assert _step(LEADER._replace(heard=6), replace(ENTRY, epoch=6)) == LeadEpoch(6)


def test_a_process_that_took_the_place_of_the_leader_waits() -> None:
    again = LEADER._replace(incarnation=8)
    assert _step(again) == KeepRole()
    assert _step(again._replace(following=4)) == StepDown()


def test_everybody_else_with_a_copy_follows_and_each_epoch_once() -> None:
    assert _step(FOLLOWER) == FollowEpoch(1, 5)
    assert _step(FOLLOWER._replace(following=5)) == KeepRole()
    assert _step(FOLLOWER._replace(following=4)) == FollowEpoch(1, 5)
    assert _step(FOLLOWER._replace(leading=True, led=4)) == FollowEpoch(1, 5)


def test_a_server_without_a_copy_has_no_part() -> None:
    change = role_in(ENTRY, FOLLOWER._replace(server_id=3))
    assert (change.drop_copy, change.step) == (True, NoCopy())
    assert not role_in(ENTRY, FOLLOWER._replace(server_id=3, placement=0)).drop_copy


def test_a_copy_of_another_assignment_goes_and_following_begins_again() -> None:
    again = replace(ENTRY, replicas=(Assignment(1, 1), Assignment(2, 2)), drawn=2)
    change = role_in(again, FOLLOWER._replace(following=5))
    assert (change.drop_copy, change.step) == (True, FollowEpoch(1, 5))
    change = role_in(again, FOLLOWER._replace(placement=0))
    assert (change.drop_copy, change.step) == (False, FollowEpoch(1, 5))


def test_watermarks_are_forgotten_only_if_losses_rose() -> None:
    assert not role_in(ENTRY, FOLLOWER).forget_watermarks
    assert role_in(ENTRY, FOLLOWER._replace(losses=1)).forget_watermarks
