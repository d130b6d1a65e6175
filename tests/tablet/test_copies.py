"""One copy of several: it leads in epochs that it is given, or follows by pulling, and then is what its leader is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strom.errors import (
    Expired,
    NotLeader,
    OffsetOutOfRange,
    StaleEpoch,
    StorageFull,
    StorageOffline,
    StromError,
)
from strom.log import group_file, groups
from strom.log.copies.pulled import PulledBatches
from strom.log.groups import Origin
from strom.replication.divergence import BaseNeeded, EpochEnd
from strom.tablet.key_tablet import KeyTablet

from .copy_bench import Copy, same_copies, same_stores
from .stage_bench import SETTINGS

KINDS = ["log", "keys"]


def leader_of(kind: str, epoch: int = 5) -> Copy:
    """A leader with ordinary batches, some with a writer, and groups."""
    leader = Copy("leader", kind).lead(epoch)
    leader.append([(1, 1), (2, 2)])
    leader.append([(3, 1)], writer_id=7, sequence=0)
    leader.now_ms += 10
    leader.group(1, [(4, 3)], [(5, 4), (6, 1)])
    leader.append([(7, 2)], writer_id=7, sequence=1)
    leader.group(4, [(8, 5)])
    leader.append([(9, 5), (10, 6)])
    return leader


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_bytes", [1, 700, 1 << 20])
def test_a_follower_becomes_what_its_leader_is(kind: str, max_bytes: int) -> None:
    leader, follower = leader_of(kind), Copy("follower", kind)
    follower.catch_up(leader, max_bytes)
    same_copies(leader, follower)
    assert set(follower.epochs().values()) == {5}
    follower.reopen()
    same_copies(leader, follower)


@pytest.mark.parametrize("kind", KINDS)
def test_a_follower_knows_which_group_overwrote_the_rest(kind: str) -> None:
    leader = leader_of(kind)
    begins = leader.end
    leader.group(7, [(1, 1)], overwrite=True)
    leader.append([(9, 9)])
    follower = Copy("follower", kind).catch_up(leader)
    same_copies(leader, follower)
    found = [one.tablet.log.groups.emptied_at(leader.end) for one in (leader, follower)]
    assert found == [begins, begins]


def test_a_copy_begins_as_a_follower_that_shows_its_base_and_takes_no_writes() -> None:
    leader = leader_of("log").sync()
    follower = Copy("follower").catch_up(leader).sync()
    with pytest.raises(NotLeader):
        follower.append([(1, 1)])
    assert (follower.tablet.high_watermark, leader.tablet.high_watermark) == (0, 0)
    follower.tablet.raise_high(3)
    assert follower.tablet.high_watermark == 3
    follower.tablet.raise_high(2)
    assert follower.tablet.high_watermark == 3
    follower.crash(True)
    assert follower.tablet.high_watermark == 0


def test_an_epoch_is_led_once_and_a_restart_begins_none() -> None:
    leader = leader_of("log", epoch=5)
    leader.sync().reopen()
    assert leader.tablet.log.epochs.latest == 5
    with pytest.raises(NotLeader):
        leader.append([(11, 1)])
    for stale in (4, 5):
        with pytest.raises(StaleEpoch):
            leader.lead(stale)
    leader.lead(9).append([(11, 1)])
    assert leader.epochs()[leader.end - 1] == 9


def test_an_epoch_without_records_leaves_no_trace() -> None:
    leader = leader_of("log", epoch=5)
    leader.lead(6)
    leader.lead(7)
    assert leader.tablet.copy.position().last_epoch == 5
    follower = Copy("follower").catch_up(leader)
    follower.lead(8).append([(11, 1)])
    leader.follow()
    leader.catch_up(follower)
    same_copies(leader, follower)
    assert set(leader.epochs().values()) == {5, 8}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_deposed_leader_has_more_is_cut_by_epochs(kind: str) -> None:
    old = leader_of(kind)
    new = Copy("new", kind).catch_up(old)
    common = new.end
    old.append([(20, 1)], writer_id=7, sequence=2)
    old.append([(21, 9)], writer_id=8, sequence=0)
    old.group(9, [(22, 2)])
    new.lead(6).append([(30, 1)], writer_id=7, sequence=2)
    old.follow()
    found = new.tablet.copy.batches_from(old.end, 5, 1000)
    assert found == EpochEnd(5, common)
    old.catch_up(new)
    same_copies(old, new)
    old.reopen()
    same_copies(old, new)


def test_a_cut_never_goes_below_what_readers_have_seen() -> None:
    leader = leader_of("log").sync()
    follower = Copy("follower").catch_up(leader).sync()
    follower.tablet.raise_high(leader.end)
    with pytest.raises(OffsetOutOfRange):
        follower.tablet.copy.cut_to(2)
    assert follower.tablet.copy.cut_to(2, lost=True) == 2
    assert follower.tablet.high_watermark == 2


def test_a_half_pulled_group_is_behind_the_end_and_dropped_at_a_change_of_role() -> None:
    leader = leader_of("log")
    leader.group(5, *[[(100 + n, n)] for n in range(5)])
    for change in ("lead", "follow", "crash", "close"):
        follower = Copy("follower")
        while follower.end < 10:
            follower.pull(leader, 1)
        follower.pull(leader, 1)
        follower.pull(leader, 1)
        mine = follower.tablet.copy.position()
        assert (mine.end, mine.at, mine.number) == (10, 12, 4)
        assert len(follower.octets()) == 7
        match change:
            case "lead":
                follower.lead(6)
            case "follow":
                follower.follow()
            case "crash":
                follower.crash(True)
            case "close":
                follower.reopen()
        mine = follower.tablet.copy.position()
        assert (mine.end, mine.at) == (10, 10)
        if change != "lead":
            follower.catch_up(leader)
            same_copies(leader, follower)


def test_nothing_of_an_open_group_is_shipped() -> None:
    leader = leader_of("log")
    end = leader.end
    leader.tablet.log.begin_group(Origin(9, "sink", 9))
    leader.tablet.append_empty(1, now_ms=leader.now_ms)
    found = leader.tablet.copy.batches_from(end, 5, 1 << 20)
    assert isinstance(found, PulledBatches)
    assert (found.end_offset, found.size) == (end, 0)
    leader.tablet.take_back()
    assert leader.tablet.copy.position().at == end


def test_whoever_lacks_what_the_log_starts_with_has_to_copy_the_base() -> None:
    leader = Copy("leader").lead(1)
    for number in range(40):
        leader.append([(number, number)])
    leader.sync()
    leader.tablet.raise_high(40, 40)
    assert leader.tablet.log.expire(now_ms=leader.now_ms, ttl_ms=None, bytes_max=1, keep_from=40).segments
    assert leader.tablet.copy.batches_from(0, -1, 1000) == BaseNeeded()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_sound_is_refused_and_nothing_of_it_is_appended(kind: str) -> None:
    leader = leader_of(kind)
    good = leader.tablet.copy.batches_from(0, -1, 1 << 20)
    assert isinstance(good, PulledBatches)
    octets = b"".join(good.records)
    follower = Copy("follower", kind)
    for position in range(0, len(octets), 7):
        bad = bytearray(octets)
        bad[position] ^= 1 << position % 8
        with pytest.raises(StromError):
            follower.tablet.copy.append_pulled(good._replace(records=[bad]), now_ms=0)
        assert follower.end == 0
    follower.catch_up(leader)
    same_copies(leader, follower)


def test_while_a_group_is_half_pulled_nothing_seals_expires_or_checkpoints_it() -> None:
    leader, follower = leader_of("log"), Copy("follower", settings=replace(SETTINGS, checkpoint_bytes=1))
    leader.group(5, *[[(100 + n, n)] for n in range(5)])
    while follower.tablet.copy.position().at < 12:
        follower.pull(leader, 1)
    follower.sync()
    follower.tablet.raise_high(10, 10)
    log = follower.tablet.log
    assert log.in_group
    assert log.pending_checkpoint() is None
    assert not log.roll_if_due(follower.now_ms + 10**9)
    assert follower.expire() == 0
    assert log.drop_before(10) == 0
    follower.catch_up(leader)
    pending = log.pending_checkpoint()
    assert pending is not None
    pending.write()
    log.checkpointed(pending)
    follower.crash(False)
    same_copies(leader, follower)


def test_groups_that_are_not_committed_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_soon(monkeypatch)
    leader = Copy("leader").lead(1)
    for number in range(1, 20):
        leader.group(number, [(number, 1)])
    assert len(leader.tablet.log.groups.closed) == 19
    leader.sync().tablet.raise_high(10)
    leader.group(20, [(20, 1)])
    assert [group.number for group in leader.tablet.log.groups.closed] == list(range(11, 21))


def test_a_follower_forgets_the_groups_that_its_leader_has_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """It pulls their batches without marks, and knows that their decisions were applied."""
    forget_soon(monkeypatch)
    leader, follower = Copy("leader").lead(1), Copy("follower")
    for number in range(1, 4):
        leader.group(number, [(number, 1)], [(number, 2)])
    while follower.tablet.log.groups.newest < 1:
        follower.pull(leader, 1)
    for number in range(4, 30):
        leader.group(number, [(number, 1)])
        leader.sync().tablet.raise_high(leader.end)
    forgotten = leader.tablet.log.groups.forgotten
    assert forgotten > 3
    follower.pull(leader, 1)
    follower.crash(True)
    assert follower.tablet.log.groups.newest == forgotten
    with pytest.raises(Expired):
        follower.tablet.log.groups.first_above(1)
    follower.catch_up(leader)
    same_copies(leader, follower)
    assert follower.tablet.log.groups.forgotten >= forgotten


def forget_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_file, "GROUPS_IN_FILE_MAX", 4)
    monkeypatch.setattr(groups, "KEPT", 2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_is_kept_for_whoever_needs_it_and_until_all_have_it_durably(kind: str) -> None:
    leader = Copy("leader", kind, "os").lead(1)
    for number in range(40):
        leader.append([(number, number % 5)])
        if number % 5 == 4:
            leader.roll()
    end = leader.end
    leader.tablet.raise_high(end, 0)
    leader.work()
    assert leader.expire() == 0, "not synced everywhere"
    leader.sync()
    stable = next(one for one in leader.tablet.log.sealed_ends if one > end // 2)
    leader.tablet.raise_high(end, stable)
    assert leader.tablet.settled == stable
    leader.tablet.keep_from = leader.tablet.log.sealed_ends[0]
    leader.work()
    assert leader.expire() == leader.tablet.keep_from
    if isinstance(leader.tablet, KeyTablet):
        assert leader.tablet.manifest is not None
        assert leader.tablet.manifest.offset <= stable
    leader.tablet.keep_from = None
    leader.work()
    assert leader.expire() == stable


def test_rows_that_readers_had_seen_and_that_are_lost_take_a_store_offline_until_it_is_reopened() -> None:
    leader = leader_of("keys").sync()
    follower = Copy("follower", "keys").catch_up(leader).sync()
    follower.tablet.raise_high(follower.end)
    leader.append([(50, 1)])
    follower.catch_up(leader)
    with pytest.raises(StorageOffline):
        follower.tablet.copy.cut_to(3, lost=True)
    follower.tablet = follower.open()
    assert follower.end == 2, "where a batch begins"
    follower.catch_up(leader)
    same_copies(leader, follower)
    same_stores(leader, follower)


def with_a_group_for_whose_mark_there_was_no_room(kind: str) -> tuple[Copy, Copy]:
    """A leader, and a follower that has all batches of a group, and no record of its closing."""
    leader, follower = Copy("leader", kind).lead(1), Copy("follower", kind)
    leader.group(1, [(1, 1)], [(2, 2)])
    follower.pull(leader, 1)
    found = leader.tablet.copy.batches_from(1, 1, 1 << 20)
    assert isinstance(found, PulledBatches)
    follower.disk.fill(found.size + 200)  # for the batch and its entry, not for the record of the closing
    with pytest.raises(StorageFull):
        follower.tablet.copy.append_pulled(found, now_ms=follower.now_ms)
    follower.disk.fill(None)
    mine = follower.tablet.copy.position()
    assert (mine.end, mine.at) == (0, 2)
    return leader, follower


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_for_whose_mark_the_disk_had_no_room_closes_with_the_next_pull(kind: str) -> None:
    leader, follower = with_a_group_for_whose_mark_there_was_no_room(kind)
    leader.append([(3, 3)])
    follower.catch_up(leader)
    assert follower.tablet.log.end_offset == leader.tablet.log.end_offset == 3
    same_copies(leader, follower)


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_for_whose_mark_the_disk_had_no_room_can_be_closed_though_nothing_more_comes(
    kind: str,
) -> None:
    leader, follower = with_a_group_for_whose_mark_there_was_no_room(kind)
    assert follower.tablet.copy.close_group() == 2
    assert follower.tablet.copy.close_group() == 2, "closed once"
    same_copies(leader, follower)
