"""How far a stream goes: a model of triggers over random tables, and what stands in a checkpoint."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.client.plan.key_plan import Instant, KeyScanPlan
from strom.client.plan.log_plan import BucketRange, ScanPlan
from strom.errors import InvalidRequest
from strom.model.bucket import BucketId
from strom.spark.source.stream_position import BEGINNING, Position, between, place_of, shared, start_of

TABLE = 7


def extent(ends: list[int], starts: list[int] | None = None) -> ScanPlan:
    firsts = starts or [0] * len(ends)
    ranges = [
        BucketRange(BucketId(TABLE, None, number), None, first, end)
        for number, (first, end) in enumerate(zip(firsts, ends, strict=True))
    ]
    return ScanPlan(TABLE, tuple(ranges))


def partitions(ends: dict[str, tuple[int, int]]) -> ScanPlan:
    return ScanPlan(
        TABLE,
        tuple(BucketRange(BucketId(TABLE, number, 0), name, 0, end) for name, (number, end) in ends.items()),
    )


counts = st.lists(st.integers(0, 50), min_size=1, max_size=4)


@given(grown=st.lists(counts, min_size=1, max_size=5), limit=st.one_of(st.none(), st.integers(1, 20)))
@settings(max_examples=100, deadline=None)
def test_triggers_read_every_offset_once_and_no_more_than_allowed(
    grown: list[list[int]], limit: int | None
) -> None:
    buckets = 4
    ends = [0] * buckets
    position = Position.of_extent(extent(ends), 1, ends=False)
    seen: list[tuple[int, int]] = []
    waiting = list(reversed(grown))
    while waiting or sum(ends) > len(seen):
        growth = waiting.pop() if waiting else [0]
        ends = [end + (growth[number] if number < len(growth) else 0) for number, end in enumerate(ends)]
        now = extent(ends)
        after = position.after(now, limit)
        parts = [
            part for _, part in between(position, after, {place_of(one): one.bucket for one in now.ranges})
        ]
        read = [
            (part.bucket.bucket, at)
            for part in parts
            if part is not None
            for at in range(part.start, part.end)
        ]
        assert limit is None or len(read) <= limit
        assert read or position.after(now, limit) == position
        seen += read
        position = Position.from_json(json.loads(json.dumps(after.to_json())))
    assert sorted(seen) == [(number, at) for number, end in enumerate(ends) for at in range(end)]


@given(instants=st.lists(st.integers(0, 40), min_size=1, max_size=4), limit=st.integers(1, 15))
@settings(max_examples=60, deadline=None)
def test_full_reads_the_instant_to_its_end_before_the_first_change(instants: list[int], limit: int) -> None:
    plan = KeyScanPlan(
        TABLE,
        tuple(
            Instant(BucketId(TABLE, None, number), None, at, 3) for number, at in enumerate(instants) if at
        ),
        None,
    )
    now = extent([at + 5 for at in instants])
    buckets = {place_of(one): one.bucket for one in now.ranges}
    position = Position.of_instant(plan, now, 1)
    images: list[tuple[int, int]] = []
    while position.full:
        after = position.after_snapshot(limit)
        for _, part in between(position, after, buckets):
            assert isinstance(part, Instant)
            assert (part.at, part.epoch) == (instants[part.bucket.bucket], 3)
            assert part.end is not None
            images += [(part.bucket.bucket, at) for at in range(part.start, part.end)]
        position = Position.from_json(json.loads(json.dumps(after.to_json())))
    assert sorted(images) == [(number, at) for number, end in enumerate(instants) for at in range(end)]
    changes = [part for _, part in between(position, position.after(now, None), buckets)]
    found = sorted((part.bucket.bucket, part.start, part.end) for part in changes if part is not None)
    assert found == [(number, at, at + 5) for number, at in enumerate(instants)]


@given(
    left=st.dictionaries(st.tuples(st.none(), st.integers(0, 9)), st.integers(0, 100)),
    rows=st.integers(1, 200),
)
@settings(max_examples=100, deadline=None)
def test_rows_are_shared_out_without_loss(left: dict[tuple[None, int], int], rows: int) -> None:
    shares = shared(left, rows)
    assert all(0 <= shares[place] <= left[place] for place in left)
    assert sum(shares.values()) <= max(rows, 0)
    assert sum(shares.values()) > 0 or sum(left.values()) == 0
    assert sum(left.values()) > rows or shares == left


def test_a_partition_made_again_begins_anew_and_a_dropped_one_is_forgotten() -> None:
    position = Position.of_extent(partitions({"a": (1, 10), "b": (2, 20), "c": (3, 5)}), 1, ends=True)
    now = partitions({"a": (1, 12), "b": (9, 4)})
    known = position.known(now)
    assert known.offsets == {("a", 0): 10}
    after = known.after(now, None)
    assert after.offsets == {("a", 0): 12, ("b", 0): 4}
    assert after.partitions == {"a": 1, "b": 9}


def test_a_partition_made_again_is_read_from_its_beginning_however_far_the_old_one_was() -> None:
    start = Position.of_extent(partitions({"a": (1, 10), "b": (2, 20), "c": (3, 5)}), 1, ends=True)
    now = partitions({"a": (1, 12), "b": (9, 4), "c": (8, 30)})
    end = start.known(now).after(now, None)
    buckets = {place_of(one): one.bucket for one in now.ranges}
    found = {
        place: (part.start, part.end) for place, part in between(start, end, buckets) if part is not None
    }
    assert found == {("a", 0): (10, 12), ("b", 0): (0, 4), ("c", 0): (0, 30)}


def test_an_instant_of_a_partition_made_again_is_lost_and_never_read_from_the_new_one() -> None:
    plan = KeyScanPlan(TABLE, (Instant(BucketId(TABLE, 2, 0), "b", 20, 3),), None)
    start = Position.of_instant(plan, partitions({"b": (2, 25)}), 1)
    now = partitions({"b": (9, 4)})
    end = start.known(now).after(now, None)
    found = list(between(start, end, {place_of(one): one.bucket for one in now.ranges}))
    assert found == [(("b", 0), None), (("b", 0), BucketRange(BucketId(TABLE, 9, 0), "b", 0, 4))]


def test_what_lies_in_a_partition_that_is_gone_is_told() -> None:
    start = Position.of_extent(partitions({"a": (1, 0)}), 1, ends=True)
    end = Position.of_extent(partitions({"a": (1, 5)}), 1, ends=True)
    assert list(between(start, end, {})) == [(("a", 0), None)]


@pytest.mark.parametrize("json", [{}, {"version": 1, "table": "x"}, {"version": 2}, {"logOffset": 3}])
def test_a_checkpoint_of_another_source_is_told_from_ours(json: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="checkpoint"):
        Position.from_json(json)


@given(
    instants=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    limit=st.one_of(st.none(), st.integers(1, 15)),
)
@settings(max_examples=60, deadline=None)
def test_the_end_of_the_first_batch_says_where_it_starts(instants: list[int], limit: int | None) -> None:
    buckets = [BucketId(TABLE, None, number) for number in range(len(instants))]
    plan = KeyScanPlan(
        TABLE, tuple(Instant(one, None, at, 3) for one, at in zip(buckets, instants, strict=True)), None
    )
    for origin in (
        Position.of_instant(plan, extent(instants), 1),
        Position.of_extent(extent(instants), 1, ends=True),
    ):
        now = extent([at + 5 for at in instants])
        moved = origin.after_snapshot(limit) if origin.full else origin.after(now, limit)
        kept = json.loads(json.dumps(replace(moved, origin=origin).to_json()))
        end = Position.from_json(kept)
        assert end.to_json() == kept
        assert start_of(json.loads(json.dumps(BEGINNING)), end) == origin
        following = end.after_snapshot(None) if end.full else end.after(now, None)
        assert following.origin is None
        assert start_of(kept, following) == end


def test_a_first_batch_that_an_older_version_left_unfinished_is_told_and_later_ones_go_on() -> None:
    old = {"version": 1, "table": TABLE, "schema": 1, "offsets": {"0": 3}}
    end = Position.from_json(old)
    with pytest.raises(InvalidRequest, match="new checkpointLocation"):
        start_of(BEGINNING, end)
    assert start_of(old, end.after(extent([9]), None)).offsets == {(None, 0): 3}


@pytest.mark.parametrize("origin", [None, 7, {}, {"table": 7, "schema": 1}])
def test_a_beginning_that_is_no_position_is_refused(origin: object) -> None:
    with pytest.raises(InvalidRequest, match="checkpoint"):
        Position.from_json({"version": 1, "table": TABLE, "schema": 1, "offsets": {"0": 3}, "from": origin})
