"""Which moves may begin, and which leaders go back."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from strom.model.bucket import BucketId
from strom.replication.bucket_entry import Assignment, BucketEntry
from strom.replication.member import CopyIdentity, Member
from strom.replication.pacing import CopiesToMake, begin_next, copies_being_made, copies_lacking
from strom.replication.preferred import due_back

TARGETS = st.lists(st.integers(1, 4), max_size=3, unique=True).map(tuple)


def to_make(targets: list[tuple[int, ...]], first: int = 0) -> list[CopiesToMake]:
    return [CopiesToMake(BucketId(1, None, first + number), one) for number, one in enumerate(targets)]


@given(st.lists(TARGETS, max_size=10), st.lists(TARGETS, max_size=10), st.integers(1, 3))
def test_no_server_makes_more_copies_than_it_may_and_none_is_idle_without_need(
    under_way: list[tuple[int, ...]], waiting: list[tuple[int, ...]], at_once: int
) -> None:
    before = to_make(under_way)
    moves = to_make(waiting, 100)
    begun = begin_next(before, moves, at_once)
    assert begun == [one.bucket for one in moves if one.bucket in begun], "in order, each once"
    making = Counter(target for one in under_way for target in one)
    full = {server for server, count in making.items() if count >= at_once}
    for move in moves:
        if move.bucket in begun:
            assert not full & set(move.targets)
            making.update(move.targets)
            full = {server for server, count in making.items() if count >= at_once}
        else:
            assert full & set(move.targets)


def entry(
    wanted: tuple[int, ...], leader: int, *, replicas: tuple[int, ...] = (), in_sync: tuple[int, ...] = ()
) -> BucketEntry:
    members = tuple(sorted(Member(one, CopyIdentity(f"d{one}", 1)) for one in in_sync or wanted))
    return BucketEntry(tuple(Assignment(one, 1) for one in replicas or wanted), wanted, leader, 1, 1, members)


def test_what_a_move_has_to_make_and_is_making() -> None:
    still = entry((1, 2, 3), 1)
    assert (copies_lacking(still), copies_being_made(still)) == ((), ())
    wanted = entry((1, 2, 4), 1, replicas=(1, 2, 3), in_sync=(1, 2, 3))
    assert (copies_lacking(wanted), copies_being_made(wanted)) == ((4,), ())
    added = entry((1, 2, 4), 1, replicas=(1, 2, 3, 4), in_sync=(1, 2, 3))
    assert (copies_lacking(added), copies_being_made(added)) == ((), (4,))
    joined = entry((1, 2, 4), 1, replicas=(1, 2, 3, 4), in_sync=(1, 2, 3, 4))
    assert (copies_lacking(joined), copies_being_made(joined)) == ((), ())


def buckets(*entries: BucketEntry) -> list[tuple[BucketId, BucketEntry]]:
    return [(BucketId(1, None, number), one) for number, one in enumerate(entries)]


def numbers(found: list[BucketId]) -> list[int]:
    return [one.bucket for one in found]


def test_a_server_gets_back_what_prefers_it_if_that_is_more_than_a_share() -> None:
    led = [entry((1, 2), 1) for _ in range(9)]
    away = entry((1, 2), 2)
    assert numbers(due_back(buckets(*led, away), [1], 10)) == []
    assert numbers(due_back(buckets(*led, away), [1], 9)) == [9]
    assert numbers(due_back(buckets(*led, away), [2], 0)) == [], "nobody prefers 2"
    assert numbers(due_back(buckets(*led, away), [], 0)) == []


def test_a_bucket_on_the_move_or_out_of_sync_stays_where_it_is() -> None:
    moving = entry((1, 2), 2, replicas=(1, 2, 3), in_sync=(1, 2))
    behind = entry((1, 2), 2, in_sync=(2,))
    fine = entry((1, 2), 2)
    assert numbers(due_back(buckets(moving, behind, fine), [1], 10)) == [2]
