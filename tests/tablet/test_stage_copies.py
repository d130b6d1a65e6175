"""Sealed stages get from one copy of a bucket to another, whole or not at all."""

from __future__ import annotations

import pytest

from strom.errors import ChecksumMismatch, OffsetOutOfRange, StageNotFound
from strom.tablet.stages import StagePiece
from strom.tablet.tablet import Durability

from .copy_bench import Copy
from .stage_bench import batch_of

ONE, TWO = (number.to_bytes(16, "big") for number in (1, 2))


def leader_with_stages(kind: str = "log", durability: Durability = "group") -> Copy:
    leader = Copy("leader", kind, durability).lead(1)
    leader.stage(ONE, [(1, 1), (2, 2)], [(3, 3)])
    leader.stage(TWO, [(4, 4)])
    return leader


def send(leader: Copy, follower: Copy, stage_id: bytes, piece: int = 100) -> int:
    """All bytes of a stage; the seal to wait for."""
    size = leader.tablet.stages.size_of(stage_id)
    while True:
        position = follower.tablet.stages.copies.arrived(stage_id)
        content = leader.tablet.stages.copies.read(stage_id, position, piece)
        arrival = follower.tablet.stages.copies.add(stage_id, size, position, content)
        if arrival.whole:
            return arrival.seal


@pytest.mark.parametrize("kind", ["log", "keys"])
@pytest.mark.parametrize("piece", [1, 100, 10_000])
def test_a_stage_is_published_from_its_copy(kind: str, piece: int) -> None:
    leader, follower = leader_with_stages(kind), Copy("follower", kind)
    for stage_id in (ONE, TWO):
        send(leader, follower, stage_id, piece)
    follower.sync_stages()
    assert sorted(follower.tablet.stages.sealed_ids()) == [ONE, TWO]
    leader.publish(1, ONE, TWO)
    follower.lead(2).publish(1, ONE, TWO)
    offsets = leader.octets()
    assert [one[20:] for one in follower.octets().values()] == [one[20:] for one in offsets.values()]
    assert follower.tablet.stages.late(1 << 60) == leader.tablet.stages.late(1 << 60)


def test_under_group_a_copied_stage_counts_once_it_is_durable() -> None:
    leader, follower = leader_with_stages(), Copy("follower")
    seal = send(leader, follower, ONE)
    assert seal > follower.tablet.stages.seals_durable
    assert follower.tablet.stages.sealed_ids() == []
    follower.sync_stages()
    assert follower.tablet.stages.seals_durable >= seal
    follower.crash(False)
    assert follower.tablet.stages.sealed_ids() == [ONE]
    assert send(leader, follower, ONE) == 0, "it has it already"


def test_under_os_a_copied_stage_survives_the_end_of_the_process() -> None:
    leader, follower = leader_with_stages(durability="os"), Copy("follower", durability="os")
    assert send(leader, follower, ONE) == 0
    follower.crash(True)
    assert follower.tablet.stages.sealed_ids() == [ONE]


def test_what_arrived_in_part_is_gone_after_a_restart_and_with_another_leader() -> None:
    leader, follower = leader_with_stages(), Copy("follower")
    copies = follower.tablet.stages.copies
    size = leader.tablet.stages.size_of(ONE)
    content = leader.tablet.stages.copies.read(ONE, 0, 50)
    assert not copies.add(ONE, size, 0, content).whole
    with pytest.raises(OffsetOutOfRange):
        copies.add(ONE, size, 10, content)
    follower.follow()
    assert copies.arrived(ONE) == 0
    assert not copies.add(ONE, size, 0, content).whole
    follower.crash(True)
    assert follower.disk.list("data/buckets/1/-/0/p1/stages") == []


def test_a_stage_with_a_wrong_byte_is_refused_and_comes_again() -> None:
    leader, follower = leader_with_stages(), Copy("follower")
    size = leader.tablet.stages.size_of(ONE)
    good = leader.tablet.stages.copies.read(ONE, 0, size)
    for position in range(0, size - 60, 13):  # one of two copies of the seal may be damaged
        bad = bytearray(good)
        bad[position] ^= 4
        with pytest.raises(ChecksumMismatch):
            follower.tablet.stages.copies.add(ONE, size, 0, bad)
    assert follower.tablet.stages.sealed_ids() == []
    send(leader, follower, ONE)
    follower.sync_stages()
    assert follower.tablet.stages.sealed_ids() == [ONE]


def test_a_damaged_stage_is_replaced_by_its_copy() -> None:
    leader, follower = leader_with_stages(), Copy("follower")
    send(leader, follower, ONE)
    follower.sync_stages()
    path = f"data/buckets/1/-/0/p1/stages/{ONE.hex()}"
    follower.disk.flip(path, 30)
    follower.crash(True)
    assert follower.tablet.stages.is_damaged(ONE)
    send(leader, follower, ONE)
    follower.sync_stages()
    assert follower.tablet.stages.sealed_ids() == [ONE]
    assert follower.disk.read_whole(path) == leader.disk.read_whole(path)
    assert follower.tablet.stages.bytes == leader.tablet.stages.size_of(ONE)


def test_who_watches_is_told_of_seals_and_drops() -> None:
    told: list[tuple[bytes, bool]] = []
    leader = Copy("leader").lead(1)
    leader.tablet.stages.on_change = lambda stage_id, there: told.append((stage_id, there))
    leader.stage(ONE, [(1, 1)])
    leader.stage(TWO, [(2, 2)])
    leader.tablet.stages.drop([ONE, b"unknown"])
    assert told == [(ONE, True), (TWO, True), (ONE, False)]
    with pytest.raises(StageNotFound):
        leader.tablet.stages.copies.read(ONE, 0, 10)


def test_a_deposed_leader_drops_what_was_not_sealed() -> None:
    leader = leader_with_stages()
    leader.append([(1, 1)])
    piece = StagePiece(b"x" * 16, "sink", 7, 60_000, 0, (), memoryview(batch_of([(1, 1)], keys=False)), False)
    leader.tablet.stage_piece(piece, form=leader.form, now_ms=leader.now_ms)
    leader.follow()
    assert len(leader.tablet.stages) == 2
    assert sorted(leader.tablet.stages.sealed_ids()) == [ONE, TWO]
