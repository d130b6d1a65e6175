"""What a round reads: everything the lake lacks, once, in files of one bucket, and not too much at a time."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.errors import LakeCorrupt
from strom.lake.rounds.parts import MB, Bounds, Ending, RoundPart, RoundParts, plan_parts
from strom.model.bucket import BucketId
from strom.model.lake.lake import Tiered

SMALL = Bounds(round_bytes=1000, task_bytes=100, task_bytes_min=20)


def bucket(number: int) -> BucketId:
    return BucketId(7, None, number)


def log_of(*ranges: tuple[int | None, int]) -> tuple[dict[BucketId, Tiered], dict[BucketId, Ending]]:
    """(lake's end or None, log's end) of each bucket; the log begins at 5."""
    lake = {bucket(n): Tiered(a, 1) for n, (a, _) in enumerate(ranges) if a is not None}
    return lake, {bucket(n): Ending(None, 5, b, 2) for n, (_, b) in enumerate(ranges)}


def covered(plan: RoundParts) -> list[tuple[int, int]]:
    parts = [part for task in plan.tasks for part in task]
    return sorted((part.bucket.bucket, offset) for part in parts for offset in range(part.start, part.end))


ranges = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(5, 60)), st.integers(0, 80)).map(
        lambda pair: (pair[0], (pair[0] or 5) + pair[1])
    ),
    min_size=1,
    max_size=6,
)


@given(ranges=ranges, width=st.sampled_from([0.5, 3.0, 40.0]), kind=st.sampled_from(["log", "keys"]))
@settings(max_examples=100, deadline=None)
def test_rounds_one_after_the_other_bring_every_offset_once(ranges, width, kind) -> None:  # type: ignore[no-untyped-def]
    lake, endings = log_of(*ranges)
    row_bytes = dict.fromkeys(endings, width)
    begun = {one: (lake[one].offset if one in lake else (5 if kind == "log" else 0)) for one in endings}
    found: list[tuple[int, int]] = []
    for _ in range(200):
        plan = plan_parts(kind, lake, endings, row_bytes, SMALL, whole=False)
        found += covered(plan)
        lake = lake | {one: Tiered(end, 2) for one, end in plan.ends.items()}
        if not plan.more:
            break
    everything = [(one.bucket, at) for one, ending in endings.items() for at in range(begun[one], ending.end)]
    assert sorted(found) == sorted(everything)
    assert plan_parts(kind, lake, endings, row_bytes, SMALL, whole=False).empty


@given(ranges=ranges, width=st.sampled_from([0.5, 3.0, 40.0]))
@settings(max_examples=100, deadline=None)
def test_a_round_of_a_log_stays_within_its_bounds(ranges, width) -> None:  # type: ignore[no-untyped-def]
    lake, endings = log_of(*ranges)
    plan = plan_parts("log", lake, endings, dict.fromkeys(endings, width), SMALL, whole=False)
    assert plan.size_bytes <= SMALL.round_bytes + width * len(endings)
    for task in plan.tasks:
        alone = len(task) == 1
        assert sum(part.width for part in task) * width <= SMALL.task_bytes * (1.5 if alone else 1) + width


def test_what_died_is_brought_by_one_part_of_each_bucket() -> None:
    lake, endings = log_of((40, 400), (None, 300))
    plan = plan_parts("keys", lake, endings, {}, Bounds(task_bytes=640, task_bytes_min=64), whole=False)
    parts = sorted((part for task in plan.tasks for part in task), key=lambda one: one.start)
    told = [part for part in parts if part.dead_from is not None]
    assert [(part.bucket.bucket, part.dead_from, part.dead_epoch) for part in told] == [(0, 40, 1)]
    assert len(parts) > 20
    assert {(part.at, part.epoch) for part in parts if part.bucket.bucket == 0} == {(400, 2)}


def test_transactions_are_never_split_over_rounds() -> None:
    lake, endings = log_of((None, 10_000), (None, 10_000))
    for kind in ("log", "keys"):
        plan = plan_parts(kind, lake, endings, {}, SMALL, whole=True)  # type: ignore[arg-type]
        assert not plan.more
        assert plan.ends == {bucket(0): 10_000, bucket(1): 10_000}


def test_a_round_brings_something_of_every_bucket_however_large_its_rows_are() -> None:
    lake, endings = log_of((None, 9), (7, 8), (6, 30))
    huge = dict.fromkeys(endings, 10.0 * SMALL.round_bytes)
    plan = plan_parts("log", lake, endings, huge, SMALL, whole=False)
    assert covered(plan) == [(0, 5), (1, 7), (2, 6)]
    assert plan.more
    keys = plan_parts("keys", lake, endings, huge, SMALL, whole=False)
    assert len(keys.ends) == 1, "a primary-key bucket is brought whole or waits"


def test_a_small_bucket_leaves_its_share_to_the_large_ones() -> None:
    lake, endings = log_of((5, 6), (5, 100_005))
    plan = plan_parts("log", lake, endings, dict.fromkeys(endings, 1.0), SMALL, whole=False)
    assert plan.ends == {bucket(0): 6, bucket(1): 5 + 999}
    assert plan.more


def test_a_large_bucket_keeps_many_cores_busy_and_small_ones_share_a_task() -> None:
    lake, endings = log_of((5, 5 + 100 * MB))
    wide = plan_parts("log", lake, endings, {bucket(0): 1.0}, Bounds(tasks_wanted=4), whole=False)
    assert [len(task) for task in wide.tasks] == [1, 1, 1, 1]
    many = plan_parts("log", *log_of(*[(5, 50)] * 40), {}, Bounds(tasks_wanted=4), whole=False)
    assert [len(task) for task in many.tasks] == [40]


def test_rows_that_retention_took_before_they_were_tiered_are_no_silent_gap() -> None:
    lake, endings = log_of((3, 100))
    with pytest.raises(LakeCorrupt, match="removed before it was tiered"):
        plan_parts("log", lake, endings, {}, SMALL, whole=False)
    assert (
        plan_parts("keys", lake, endings, {}, SMALL, whole=False).rows == 97
    )  # its images are kept elsewhere


def test_a_lake_that_is_ahead_of_its_log_is_not_planned() -> None:
    lake, endings = log_of((50, 40))
    with pytest.raises(LakeCorrupt, match="up to offset 50"):
        plan_parts("log", lake, endings, {}, SMALL, whole=False)


def test_a_part_survives_being_json() -> None:
    part = RoundPart(BucketId(1, 9, 2), "2026-11-15", 5, 9, at=12, epoch=3, dead_from=5, dead_epoch=1)
    assert RoundPart.from_json(json.loads(json.dumps(part.to_json()))) == part
