"""A follower that lacks what the log starts with copies the base, then goes on with the log from there (R18)."""

from __future__ import annotations

import pytest

from strom.errors import ChecksumMismatch, Expired, InvalidRequest, OffsetOutOfRange
from strom.replication.divergence import BaseNeeded
from strom.tablet.copies import base_install
from strom.tablet.copies.base_copy import BaseCopy, CopyFile
from strom.tablet.copies.base_install import BaseInstall, install_copied
from strom.tablet.key_tablet import KeyTablet
from strom.testing.disk import Drawn, ForgettingDisk

from .copy_bench import FOLDER, Copy, same_copies, same_stores

KINDS = ["log", "keys"]
STAGE = b"a sealed stage.."


def old_leader(kind: str) -> Copy:
    """A leader whose log starts above 0: writers and groups lie before its start, and around it."""
    leader = Copy("leader", kind).lead(3)
    for number in range(12):
        leader.append([(number, number % 5), (None, 9)], writer_id=7, sequence=number)
        leader.append([(number + 100, number % 7)], writer_id=1000 + number, sequence=0)
    leader.group(1, [(200, 1)], [(201, 2)])
    leader.append([(202, 3)], writer_id=99, sequence=0)
    leader.sync()
    leader.lead(4)
    leader.append([(203, 4)], writer_id=7, sequence=12)
    settle(leader)
    leader.append([(300, 1), (301, 8)], writer_id=7, sequence=13)
    leader.group(2, [(302, 2)])
    leader.sync()
    return leader


def settle(leader: Copy) -> None:
    """All of it is committed: the log goes as far as it may."""
    leader.sync()
    leader.tablet.raise_high(leader.end, leader.end)
    leader.roll()
    leader.work()
    leader.expire()
    assert leader.tablet.log.start_offset > 0


def copy_base(leader: Copy, follower: Copy, *, holder: int = 1, piece: int = 300) -> BaseCopy:
    """Copy the base into the place of what a follower has; it is open again afterwards."""
    base = leader.tablet.copy.begin_copy(holder)
    follower.tablet.abandon()
    install = BaseInstall(follower.disk, FOLDER, base)
    while (wanted := install.wanted) is not None:
        install.add(*wanted, *leader.tablet.copy.read_copy_file(holder, *wanted, piece))
    install.finish()
    follower.tablet = follower.open()
    return base


def mirror_stage(leader: Copy, follower: Copy) -> None:
    """Let a follower have a sealed stage of its leader, as durable as promised."""
    leader.stage(STAGE, [(900, 9), (901, 10)])
    size = leader.tablet.stages.size_of(STAGE)
    follower.tablet.stages.copies.add(STAGE, size, 0, leader.tablet.stages.copies.read(STAGE, 0, size))
    follower.sync_stages()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moved", [7, 1 << 20])
def test_stages_that_are_here_stay_as_they_are(
    kind: str, moved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_install, "MOVED_BYTES", moved)
    leader, follower = old_leader(kind), Copy("follower", kind)
    mirror_stage(leader, follower)
    copy_base(leader, follower)
    assert follower.tablet.stages.sealed_ids() == [STAGE]
    size = leader.tablet.stages.size_of(STAGE)
    assert follower.tablet.stages.size_of(STAGE) == size
    read = [one.tablet.stages.copies.read(STAGE, 0, size) for one in (leader, follower)]
    assert bytes(read[0]) == bytes(read[1])
    follower.catch_up(leader)
    follower.lead(9).publish(50, STAGE)
    assert follower.end > leader.end


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("piece", [37, 1 << 20])
def test_a_copied_base_and_the_log_from_there_make_the_same_copy(kind: str, piece: int) -> None:
    leader, follower = old_leader(kind), Copy("follower", kind)
    assert leader.tablet.copy.batches_from(0, -1, 1000) == BaseNeeded()
    base = copy_base(leader, follower, piece=piece)
    position = follower.tablet.copy.position()
    assert position.end == position.synced == base.offset == follower.tablet.high_watermark
    assert position.last_epoch == leader.tablet.epoch_before(base.offset) >= 3
    follower.catch_up(leader)
    same_copies(leader, follower)
    follower.crash(True)
    same_copies(leader, follower)
    leader.tablet.copy.end_copy(1)


@pytest.mark.parametrize("kind", KINDS)
def test_who_leads_from_a_copied_base_answers_repeated_batches_and_applies_no_decision_twice(
    kind: str,
) -> None:
    leader, follower = old_leader(kind), Copy("follower", kind)
    copy_base(leader, follower)
    follower.catch_up(leader)
    first = leader.append([(300, 1), (301, 8)], writer_id=7, sequence=13)
    follower.lead(9)
    assert follower.append([(300, 1), (301, 8)], writer_id=7, sequence=13) == first
    assert follower.append([(202, 3)], writer_id=99, sequence=0).duplicate
    end = follower.end
    follower.publish(1)
    follower.publish(2)
    assert follower.end == end
    assert follower.append([(400, 1)], writer_id=7, sequence=14).base_offset == end


def test_the_base_of_a_primary_key_table_has_the_whole_log() -> None:
    """Also what its files carry: readers of the changelog go on at whoever copied it."""
    leader, follower = Copy("leader", "keys").lead(3), Copy("follower", "keys")
    for number in range(30):
        leader.append([(number, number % 7)], writer_id=7, sequence=number)
        if number % 10 == 9:
            leader.group(number, [(100 + number, 1)])
            leader.sync()
            leader.tablet.raise_high(leader.end, leader.end)
            leader.roll()
            leader.work()
    assert isinstance(leader.tablet, KeyTablet)
    assert leader.tablet.manifest is not None
    assert leader.tablet.manifest.carried > leader.tablet.start_offset == 0
    leader.append([(200, 2)])
    base = copy_base(leader, follower)
    assert follower.tablet.start_offset == 0 < base.offset == leader.tablet.base_offset
    follower.catch_up(leader)
    assert follower.octets() == leader.octets()
    same_copies(leader, follower)
    same_stores(leader, follower)


def test_a_base_spares_a_copy_what_lies_below_it() -> None:
    leader = Copy("leader", "keys").lead(3)
    assert leader.tablet.base_bytes == 0
    for number in range(30):
        leader.append([(number, number)])
    leader.sync()
    leader.tablet.raise_high(leader.end, leader.end)
    assert leader.tablet.base_bytes == 0, "there is no snapshot yet"
    leader.work()
    size = leader.tablet.log.size_bytes
    assert leader.tablet.base_bytes == pytest.approx(size, rel=0.1)
    for number in range(30):
        leader.append([(100 + number, 100 + number)])
    assert leader.tablet.base_bytes == pytest.approx(size, rel=0.1)
    assert old_leader("log").tablet.base_bytes == 0


def test_a_base_without_a_record_behind_it_remembers_its_writers_and_its_number() -> None:
    leader = Copy("leader").lead(3)
    for number in range(30):
        leader.append([(number, number)], writer_id=7, sequence=number)
    leader.group(5, [(100, 1)])
    settle(leader)
    follower = Copy("follower")
    copy_base(leader, follower)
    assert follower.tablet.log.groups.newest == 5
    follower.sync().crash(False)
    follower.lead(4)
    assert follower.append([(29, 29)], writer_id=7, sequence=29).duplicate
    assert follower.append([(30, 30)], writer_id=7, sequence=30).base_offset == 31


@pytest.mark.parametrize("kind", KINDS)
def test_the_leader_holds_the_base_while_somebody_copies_it(kind: str) -> None:
    leader, follower = old_leader(kind), Copy("follower", kind)
    first = leader.tablet.copy.begin_copy(1)
    start = leader.tablet.log.start_offset
    for number in range(30):
        leader.append([(500 + number, number)])
    leader.sync()
    leader.tablet.raise_high(leader.end, leader.end)
    leader.roll()
    leader.work()
    leader.expire()
    assert leader.tablet.log.start_offset <= first.offset
    assert leader.tablet.copy.begin_copy(1) == first
    second = leader.tablet.copy.begin_copy(2)
    assert second.offset == first.offset if kind == "log" else second.offset > first.offset
    follower.tablet.abandon()
    install = BaseInstall(follower.disk, FOLDER, first)
    while (wanted := install.wanted) is not None:
        install.add(*wanted, *leader.tablet.copy.read_copy_file(1, *wanted, 1000))
    install.finish()
    follower.tablet = follower.open()
    follower.catch_up(leader)
    same_copies(leader, follower)
    leader.tablet.copy.end_copy(1)
    leader.tablet.copy.end_copy(2)
    leader.expire()
    assert leader.tablet.log.start_offset > max(start, first.offset)
    with pytest.raises(Expired):
        leader.tablet.copy.read_copy_file(1, 0, 0, 10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("survival", [True, False, *map(Drawn, range(6))], ids=repr)
def test_a_copy_goes_on_after_a_crash(kind: str, survival: bool | Drawn) -> None:
    leader, follower = old_leader(kind), Copy("follower", kind)
    base = leader.tablet.copy.begin_copy(1)
    follower.tablet.abandon()
    install = BaseInstall(follower.disk, FOLDER, base)
    whole = [0]
    for asked in range(10_000):
        if (wanted := install.wanted) is None:
            break
        install.add(*wanted, *leader.tablet.copy.read_copy_file(1, *wanted, 150))
        if asked in (1, 4, 8, 12):
            whole.append(len(base.files) if install.wanted is None else install.wanted[0])
            follower.disk.crash(survival)
            install = BaseInstall(follower.disk, FOLDER, base)
            assert install.wanted == (whole[-1], 0), "whole files stay, the one at work begins again"
    assert whole[-1] > whole[1]
    install.finish()
    follower.tablet = follower.open()
    follower.catch_up(leader)
    same_copies(leader, follower)


def test_another_base_begins_anew() -> None:
    leader, disk = old_leader("log"), ForgettingDisk()
    base = leader.tablet.copy.begin_copy(1)
    install = BaseInstall(disk, FOLDER, base)
    install.add(0, 0, *leader.tablet.copy.read_copy_file(1, 0, 0, 1000))
    assert BaseInstall(disk, FOLDER, base).wanted == (1, 0)
    other = base._replace(offset=base.offset + 1)
    assert BaseInstall(disk, FOLDER, other).wanted == (0, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("survival", [True, False, Drawn(1), Drawn(2)], ids=repr)
def test_at_every_crash_the_old_copy_or_the_new_one_is_there(kind: str, survival: bool | Drawn) -> None:
    leader, follower = old_leader(kind), Copy("follower", kind)
    other = Copy("other", kind).lead(1)
    other.append([(1, 1)])
    follower.catch_up(other)
    mirror_stage(other, follower)
    follower.sync().reopen()
    base = leader.tablet.copy.begin_copy(1)
    install = BaseInstall(follower.disk, FOLDER, base)
    while (wanted := install.wanted) is not None:
        install.add(*wanted, *leader.tablet.copy.read_copy_file(1, *wanted, 1000))
    follower.tablet.abandon()
    began = len(follower.disk.trace)
    install.finish()
    ends = set()
    for _, disk in ForgettingDisk.moments(follower.disk.trace, survival, first=began):
        install_copied(disk, FOLDER)
        found = Copy("found", kind, disk=disk)
        assert disk.list(FOLDER.rpartition("/")[0]) in (["p1"], ["p1", "p1.copying"])
        assert found.tablet.stages.sealed_ids() == [STAGE], "the leader was told that it is here"
        ends.add(found.end)
        if found.end == base.offset:
            found.catch_up(leader)
            same_copies(leader, found)
    assert ends == {1, base.offset}


def test_pieces_that_are_not_wanted_or_not_sound_are_refused() -> None:
    leader, disk = old_leader("log"), ForgettingDisk()
    base = leader.tablet.copy.begin_copy(1)
    content, crc = leader.tablet.copy.read_copy_file(1, 0, 0, 10)
    disk.make_folder(FOLDER)
    install = BaseInstall(disk, FOLDER, base)
    with pytest.raises(ChecksumMismatch):
        install.add(0, 0, content, crc ^ 1)
    for file, position in ((1, 0), (0, 5)):
        with pytest.raises(OffsetOutOfRange):
            install.add(file, position, content, crc)
    for file, position in ((9, 0), (0, 10**6), (-1, 0)):
        with pytest.raises(OffsetOutOfRange):
            leader.tablet.copy.read_copy_file(1, file, position, 10)
    for name in ("../x", "kv/../x", "/x", "a/b", "kv/", "", "x.tmp", "X"):
        with pytest.raises(InvalidRequest):
            BaseInstall(disk, FOLDER, BaseCopy(0, (CopyFile(name, 1),)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_pieces_of_a_base_are_what_is_wanted_one_after_the_other(kind: str) -> None:
    leader, disk = old_leader(kind), ForgettingDisk()
    base = leader.tablet.copy.begin_copy(1)
    install, asked = BaseInstall(disk, FOLDER, base), 0
    planned = list(install.pieces(150))
    while (wanted := install.wanted) is not None:
        left = list(install.pieces(150))
        assert left == planned[asked:]
        piece = left[0]
        assert (piece.file, piece.position) == wanted
        install.add(*wanted, *leader.tablet.copy.read_copy_file(1, *wanted, piece.size))
        asked += 1
    assert list(install.pieces(150)) == []
    assert asked == sum(-(-one.size // 150) for one in base.files)


def test_a_store_from_a_copied_base_equals_a_replay() -> None:
    leader, follower = old_leader("keys"), Copy("follower", "keys")
    copy_base(leader, follower)
    follower.catch_up(leader).sync()
    assert isinstance(follower.tablet, KeyTablet)
    assert isinstance(leader.tablet, KeyTablet)
    same_stores(leader, follower)
    follower.tablet.raise_high(follower.end)
    leader.tablet.raise_high(leader.end)
    assert follower.table() == leader.table() != {}
