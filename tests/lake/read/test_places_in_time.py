"""Parts of a read in time, decided before anything is read: where each tier begins and ends. Pure, without servers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strom.client.plan.log_place import EARLIEST, LATEST, Place, PlaceKind, place_of
from strom.client.plan.log_plan import BucketRange, ScanPlan
from strom.client.plan.offsets import Offsets
from strom.errors import InvalidRequest
from strom.lake.files.file_reader import LakeFile
from strom.lake.read.lake_only_log import _below, _counts, _meet
from strom.lake.read.lake_only_rows import _ends
from strom.lake.read.time_travel import SNAPSHOT_IDS_FROM, Moment, between, moment_of
from strom.lake.read.union_plan import BucketEnd, LakeLimits, UnionPlan
from strom.lake.read.union_planner import _gone
from strom.lake.upkeep.expiry import COMMITTED_PREFIX, committed, name_of
from strom.lake.upkeep.removal import _OURS
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey, Tiered

A, B, COLD = BucketId(1, None, 0), BucketId(1, None, 1), BucketId(1, None, 2)
PLAN = UnionPlan(
    1,
    77,
    (),
    ScanPlan(1, (BucketRange(A, None, 10, 20), BucketRange(B, None, 10, 20))),
    ends=(
        BucketEnd(A, None, 20, hot=True),
        BucketEnd(B, None, 20, hot=True),
        BucketEnd(COLD, None, 8, hot=False),
    ),
)
"""The lake holds two buckets up to 10 and the servers the rest; a third is in the lake alone."""


def cut(start: Place, end: Place, monkeypatch: pytest.MonkeyPatch, times: dict[int, int]) -> UnionPlan:
    """``times``: the offset in every bucket of a server at a time."""

    async def at(self: Offsets, place: Place, buckets: Any) -> dict[BucketId, int]:
        found = {}
        for bucket, partition in buckets:
            assert bucket != COLD, "no server has it"
            said = place.offset_in(bucket, partition)
            found[bucket] = times[place.value] if place.kind is PlaceKind.TIME else (said or 0)
        return found

    monkeypatch.setattr(Offsets, "at", at)
    wanted = cast(Any, SimpleNamespace(table=SimpleNamespace(table_id=1)))
    return asyncio.run(between(cast(Any, None), wanted, PLAN, start, end))


def hot(plan: UnionPlan) -> list[tuple[int, int, int]]:
    return [(one.bucket.bucket, one.start, one.end) for one in cast(ScanPlan, plan.hot).ranges]


def test_a_log_between_two_offsets_is_cut_in_both_tiers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cut(EARLIEST, LATEST, monkeypatch, {}) is PLAN
    part = cut(place_of({0: 5, 1: 15}, default=EARLIEST), place_of(18, default=LATEST), monkeypatch, {})
    assert hot(part) == [(0, 10, 18), (1, 15, 18)]
    assert part.limits == LakeLimits({A: 5, B: 15, COLD: 0}, {A: 18, B: 18, COLD: 18})
    assert [one.end for one in part.ends] == [18, 18, 8], "where whoever goes on has to begin"
    before = cut(EARLIEST, place_of(7, default=LATEST), monkeypatch, {})
    assert hot(before) == []
    assert before.limits == LakeLimits({A: 0, B: 0, COLD: 0}, {A: 7, B: 7, COLD: 7})
    assert [one.end for one in before.ends] == [7, 7, 7], "also of a bucket that is in the lake alone"
    behind = cut(place_of(99, default=EARLIEST), LATEST, monkeypatch, {})
    assert hot(behind) == []
    assert [one.end for one in behind.ends] == [20, 20, 8]
    with pytest.raises(InvalidRequest, match="no bucket 7"):
        cut(place_of({7: 1}, default=EARLIEST), LATEST, monkeypatch, {})


def test_a_log_between_two_times_is_cut_by_what_every_row_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    part = cut(Place(PlaceKind.TIME, 100), Place(PlaceKind.TIME, 200), monkeypatch, {100: 12, 200: 17})
    assert hot(part) == [(0, 12, 17), (1, 12, 17)]
    assert part.limits == LakeLimits({}, {}, after_ms=100, before_ms=200)
    mixed = cut(Place(PlaceKind.TIME, 100), LATEST, monkeypatch, {100: 12})
    assert hot(mixed) == [(0, 12, 20), (1, 12, 20)]
    assert mixed.limits == LakeLimits({}, {A: 20, B: 20, COLD: 8}, after_ms=100)


def test_a_number_is_a_snapshot_from_where_no_offset_reaches() -> None:
    assert moment_of(SNAPSHOT_IDS_FROM) == Moment(snapshot_id=SNAPSHOT_IDS_FROM)
    for place in (SNAPSHOT_IDS_FROM - 1, 0, True, "latest", None, {0: 1 << 60}):
        assert moment_of(place) is None


def file(first: int, last: int, bucket: int = 0) -> LakeFile:
    return LakeFile("file:///x", 1, last - first + 1, bucket, first, last)


def test_of_a_lake_only_start_the_files_count_that_reach_below_the_servers() -> None:
    assert _meet(PLAN, {A: 10, B: 3})
    assert not _meet(PLAN, {A: 11, B: 3}), "rows went between the two questions"
    ended = UnionPlan(1, 77, (), ScanPlan(1, ()), ends=(BucketEnd(A, None, 10, hot=True),))
    assert _meet(ended, {A: 10})
    assert not _meet(ended, {A: 11})
    below = _below(PLAN, {A: 5})
    assert below.limits == LakeLimits({}, {A: 5})
    assert [_counts(below, file(*span)) for span in ((0, 4), (4, 9), (5, 9))] == [True, True, False]
    assert _counts(below, file(5, 9, bucket=1)), "of a bucket that nobody spoke of all counts"
    later = UnionPlan(1, 77, (), ScanPlan(1, ()), limits=LakeLimits({A: 4}, {}))
    assert [_counts(later, file(*span)) for span in ((0, 3), (0, 4), (4, 4))] == [False, True, True]


def test_partitions_that_only_the_lake_has_are_those_that_nobody_dropped() -> None:
    record = SimpleNamespace(partitions={1: "a$x", 2: "b$x", 3: "c$x", 4: "odd"}, dropped={3: "c$x"})
    table = cast(Any, SimpleNamespace(description=SimpleNamespace(partition_keys=("p", "q"))))
    existing = [cast(Any, SimpleNamespace(partition_id=1))]
    found = _gone(table, cast(Any, SimpleNamespace(record=record)), existing)
    assert [(one.partition_id, one.name, one.values) for one in found] == [(2, "b$x", ("b", "x"))]
    assert _gone(table, None, existing) == []


def test_a_bucket_that_was_made_again_counts_once_it_has_all_rows_of_the_old_one() -> None:
    offsets = {LakeKey(1, 0): Tiered(10, 0), LakeKey(1, 1): Tiered(10, 0), LakeKey(2, 0): Tiered(5, 0)}
    record = cast(Any, SimpleNamespace(offsets=offsets))
    again = {("a", 0): 9, ("a", 1): 10}
    assert _ends(record, {1: "a"}, again) == {("a", 0): 10}
    assert _ends(record, {1: "a", 2: "b"}, {}) == {("a", 0): 10, ("a", 1): 10, ("b", 0): 5}


def test_lists_and_files_are_known_by_their_names() -> None:
    assert name_of("file:///t/metadata/strom-removed-17-0af.json") == "17-0af"
    for other in ("strom-removed-17.json", "strom-removed-17-0AF.json", "x-strom-removed-17-0af.json"):
        assert name_of(f"file:///t/metadata/{other}") == ""
    since = {f"{COMMITTED_PREFIX}17-0af": "123", f"{COMMITTED_PREFIX}bad": "soon", "other": "5"}
    assert committed(since) == {"17-0af": 123}
    ours = ["data/strom-r1-0.parquet", "data/strom-r1-0.parquet.offsets", "metadata/snap-7.avro"]
    ours += ["metadata/7-m0.avro", "metadata/strom-offsets-7.json"]
    theirs = [
        "data/00000-7.parquet",
        "data/x/strom-r1.parquet",
        "metadata/v1.metadata.json",
        "strom-claim.json",
    ]
    theirs += ["metadata/strom-removed-17-0af.json", "metadata/strom-claim.json", "metadata/snap-7.avro.bak"]
    assert [name for name in [*ours, *theirs] if _OURS.fullmatch(name)] == ours
