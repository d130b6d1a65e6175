"""What a coordinator decides about one bucket."""

from __future__ import annotations

from dataclasses import replace

from strom.replication import elections
from strom.replication.bucket_entry import Assignment, BucketEntry
from strom.replication.elections import FoundCopy
from strom.replication.member import CopyIdentity, CopyPromise, Member
from strom.replication.registration import DataDisk, Registration

GROUP, OS = CopyPromise("group", 2), CopyPromise("os", 2)
ALL = (1, 2, 3, 4)


def _member(server_id: int, *, lineage: int = 0, placement: int = 1) -> Member:
    return Member(server_id, CopyIdentity(f"disk {server_id}", placement, lineage))


def _entry(*in_sync: int, lineage: int = 0, leader: int = 1) -> BucketEntry:
    members = tuple(_member(one, lineage=lineage) for one in in_sync or (1, 2, 3))
    replicas = tuple(Assignment(one, 1) for one in (1, 2, 3))
    return BucketEntry(replicas, (1, 2, 3), leader, 10 + leader, 5, members)


def _registered(**changed: Registration) -> dict[int, Registration]:
    servers = {one: Registration(one, 10 + one, (DataDisk(f"disk {one}", 1),)) for one in ALL}
    return servers | {int(name[1:]): one for name, one in changed.items()}


def test_a_leader_that_lives_stays() -> None:
    assert elections.decide(_entry(), _registered(), ALL, GROUP) is None


def test_when_the_leader_dies_the_next_wanted_member_leads_and_the_dead_one_leaves_in_the_same_commit() -> (
    None
):
    change = elections.decide(_entry(), _registered(), (2, 3), GROUP)
    assert change is not None
    assert (change.entry.leader, change.entry.incarnation, change.entry.epoch) == (2, 12, 6)
    assert change.entry.in_sync == (_member(2), _member(3))
    assert change.rests_on == (2,)


def test_a_leader_that_was_restarted_needs_a_new_epoch() -> None:
    again = _registered(s1=Registration(1, 99, (DataDisk("disk 1", 1),)))
    change = elections.decide(_entry(), again, ALL, GROUP)
    assert change is not None
    assert (change.entry.leader, change.entry.incarnation, change.entry.epoch) == (1, 99, 6)
    assert change.entry.in_sync == _entry().in_sync


def test_the_set_never_shrinks_below_min_insync() -> None:
    change = elections.elect(_entry(1, 2), _registered(), (2, 3), GROUP)
    assert change is not None
    assert (change.entry.leader, change.entry.in_sync) == (2, (_member(1), _member(2)))


def test_a_member_that_lost_its_disk_leaves_before_one_that_is_only_away() -> None:
    lost = _registered(s3=Registration(3, 20, (DataDisk("another", 1),)))
    change = elections.elect(_entry(), lost, (2, 3), GROUP)
    assert change is not None
    assert (change.entry.leader, change.entry.in_sync) == (2, (_member(1), _member(2)))


def test_only_a_copy_that_is_still_what_it_was_can_lead() -> None:
    unclean = _registered(s2=Registration(2, 20, (DataDisk("disk 2", 2),)))
    change = elections.elect(_entry(lineage=1), unclean, (2, 3), OS)
    assert change is not None
    assert change.entry.leader == 3
    change = elections.elect(_entry(), unclean, (2, 3), GROUP)
    assert change is not None
    assert change.entry.leader == 2
    again = replace(_entry(), replicas=(Assignment(1, 1), Assignment(2, 2), Assignment(3, 1)), drawn=2)
    change = elections.elect(again, _registered(), (2, 3), GROUP)
    assert change is not None
    assert change.entry.leader == 3


def test_without_a_member_alive_nobody_leads_however_many_copies_live() -> None:
    assert elections.decide(_entry(1), _registered(), (2, 3, 4), GROUP) is None


def test_a_dead_follower_leaves_the_set_without_an_election() -> None:
    change = elections.drop_dead(_entry(), _registered(), (1, 2), GROUP)
    assert change is not None
    assert (change.entry.epoch, change.entry.in_sync) == (5, (_member(1), _member(2)))
    assert elections.drop_dead(_entry(1, 2), _registered(), (1,), GROUP) is None
    assert elections.drop_dead(_entry(), _registered(), (2, 3), CopyPromise("group", 1)) is None


def test_a_move_of_the_leader_goes_to_a_wanted_member_only() -> None:
    change = elections.move_leader(_entry(), _registered(), ALL, GROUP)
    assert change is not None
    assert (change.entry.leader, change.entry.epoch, change.rests_on) == (2, 6, (2,))
    change = elections.move_leader(_entry(), _registered(), ALL, GROUP, to=3)
    assert change is not None
    assert change.entry.leader == 3
    assert elections.move_leader(_entry(1, 2), _registered(), ALL, GROUP, to=3) is None
    unwanted = replace(_entry(), wanted=(1, 3))
    assert elections.move_leader(unwanted, _registered(), ALL, GROUP, to=2) is None


# --- after a loss ------------------------------------------------------------------------------------------------


def _found(
    server_id: int, last_epoch: int, end: int, *, lineage: int = 2, incarnation: int = 20
) -> FoundCopy:
    return FoundCopy(incarnation, CopyIdentity(f"disk {server_id}", 1, lineage), last_epoch, end)


def _all_lost_power() -> dict[int, Registration]:
    return {one: Registration(one, 20, (DataDisk(f"disk {one}", 2),)) for one in ALL}


def test_when_all_lost_power_the_most_complete_member_leads_and_the_loss_is_declared() -> None:
    entry, servers = _entry(1, 2, lineage=1), _all_lost_power()
    found = {1: _found(1, 5, 7), 2: _found(2, 5, 9), 3: _found(3, 9, 1)}
    change = elections.recover(entry, servers, found, OS)
    assert change is not None
    assert (change.entry.leader, change.entry.epoch, change.entry.losses) == (2, 6, 1)
    assert change.entry.in_sync == (_member(2, lineage=2),)
    assert change.rests_on == (1, 2)
    assert elections.recover(entry, servers, {2: found[2]}, OS) is None, "1 has its disk: wait for it"
    old = found | {1: _found(1, 5, 7, incarnation=19)}
    assert elections.recover(entry, servers, old, OS) is None, "another process answered"
    later = found | {1: _found(1, 6, 1)}
    change = elections.recover(entry, servers, later, OS)
    assert change is not None
    assert change.entry.leader == 1, "a later epoch began with all that was committed"
    gone = servers | {1: Registration(1, 20, (DataDisk("new", 1),))}
    change = elections.recover(entry, gone, {2: found[2]}, OS)
    assert change is not None
    assert change.entry.leader == 2


def test_under_group_or_without_any_disk_only_a_person_declares_a_loss() -> None:
    entry = _entry(1, 2)
    gone = {one: Registration(one, 20, (DataDisk("new", 1),)) for one in (1, 2)} | {3: _registered()[3]}
    found = {3: _found(3, 4, 4, lineage=0, incarnation=13)}
    assert elections.recover(entry, gone, found, GROUP) is None
    assert elections.recover(entry, gone, found, OS) is None
    change = elections.force(entry, gone, found, GROUP)
    assert change is not None
    assert (change.entry.leader, change.entry.losses, change.entry.in_sync) == (3, 1, (_member(3),))
    assert change.rests_on == (1, 2, 3)


def test_nothing_is_declared_lost_while_a_sound_member_may_return() -> None:
    servers = _all_lost_power() | {3: Registration(3, 13, (DataDisk("disk 3", 1),))}
    found = {1: _found(1, 5, 7), 2: _found(2, 5, 9)}
    assert elections.recover(_entry(lineage=1), servers, found, OS) is None


# --- moving copies -----------------------------------------------------------------------------------------------


def test_a_copy_is_added_joins_and_only_then_the_old_one_goes() -> None:
    entry = elections.want(_entry(), (2, 3, 4)).entry
    added = elections.decide(entry, _registered(), ALL, GROUP)
    assert added is not None
    assert added.entry.replicas == (*entry.replicas, Assignment(4, 2))
    assert elections.decide(added.entry, _registered(), ALL, GROUP) is None, "4 is not in sync yet"
    joined = added.entry.with_in_sync((*added.entry.in_sync, _member(4, placement=2)))
    moved = elections.decide(joined, _registered(), ALL, GROUP)
    assert moved is not None
    assert (moved.entry.leader, moved.entry.servers) == (2, (1, 2, 3, 4))
    removed = elections.decide(moved.entry, _registered(), ALL, GROUP)
    assert removed is not None
    assert removed.entry.servers == (2, 3, 4)
    assert [one.server_id for one in removed.entry.in_sync] == [2, 3, 4]
    assert elections.decide(removed.entry, _registered(), ALL, GROUP) is None


def test_a_server_that_gets_a_copy_again_gets_another_placement() -> None:
    entry = _entry()
    for placement in (2, 3):
        without = elections.advance_move(elections.want(entry, (1, 2)).entry, _registered(), GROUP)
        assert without is not None
        assert without.entry.servers == (1, 2)
        again = elections.advance_move(elections.want(without.entry, (1, 2, 3)).entry, _registered(), GROUP)
        assert again is not None
        assert again.entry.placement_of(3) == placement
        entry = again.entry.with_in_sync((*again.entry.in_sync, _member(3, placement=placement)))


def test_no_copy_goes_where_too_few_would_be_in_sync() -> None:
    small = elections.want(_entry(), (1,)).entry
    assert elections.advance_move(small, _registered(), GROUP) is None


# --- a leader that lives and is cut off from its copies -----------------------------------------------------------


def _replaced(
    cut_from: dict[int, set[int]], *in_sync: int, alive: tuple[int, ...] = (1, 2, 3)
) -> BucketEntry | None:
    change = elections.replace_cut_off(_entry(*in_sync), _registered(), alive, cut_from, GROUP)
    return None if change is None else change.entry


def test_a_leader_that_all_its_followers_miss_is_replaced_and_leaves_the_set_in_the_same_commit() -> None:
    entry = _replaced({2: {1}, 3: {1}})
    assert entry is not None
    assert (entry.leader, entry.incarnation, entry.epoch) == (2, 12, 6)
    assert [one.server_id for one in entry.in_sync] == [2, 3]


def test_a_cut_off_leader_stays_in_the_set_where_too_few_would_be_left() -> None:
    """R9: server 3 was taken out before, when it fell behind."""
    entry = _replaced({2: {1}, 3: {1}}, 1, 2)
    assert entry is not None
    assert entry.leader == 2
    assert [one.server_id for one in entry.in_sync] == [1, 2]


def test_only_a_copy_in_sync_replaces_a_cut_off_leader() -> None:
    entry = _replaced({2: {1}, 3: {1}}, 1, 3)
    assert entry is not None
    assert entry.leader == 3
    assert _replaced({2: {1}, 3: {1}}, 1) is None


def test_a_leader_that_one_follower_misses_stays() -> None:
    assert _replaced({2: {1}}) is None
    assert _replaced({2: {1}, 3: {2}}) is None
    assert _replaced({}) is None


def test_copies_that_are_gone_miss_nobody() -> None:
    assert _replaced({2: {1}, 3: {1}}, alive=(1, 2)) is None


def test_a_leader_that_is_gone_is_for_the_usual_election() -> None:
    assert _replaced({2: {1}, 3: {1}}, alive=(2, 3)) is None


def test_where_nobody_reaches_anybody_the_leader_stays() -> None:
    assert _replaced({2: {1, 3}, 3: {1, 2}}) is None


def test_of_those_that_miss_the_leader_one_that_the_others_reach_leads() -> None:
    entry = _replaced({2: {1}, 3: {1, 2}})
    assert entry is not None
    assert entry.leader == 3


def test_with_more_copies_more_must_miss_the_leader_than_do_not() -> None:
    replicas = tuple(Assignment(one, 1) for one in (1, 2, 3, 4, 5))
    five = replace(_entry(1, 2, 3, 4, 5), replicas=replicas, wanted=(1, 2, 3, 4, 5))
    servers = _registered() | {5: Registration(5, 15, (DataDisk("disk 5", 1),))}
    alive = (1, 2, 3, 4, 5)
    assert elections.replace_cut_off(five, servers, alive, {2: {1}, 3: {1}}, GROUP) is None
    change = elections.replace_cut_off(five, servers, alive, {2: {1}, 3: {1}, 4: {1}}, GROUP)
    assert change is not None
    assert change.entry.leader == 2
