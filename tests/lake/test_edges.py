"""What files say of their rows encloses them, and what is dead is counted from where its row group begins."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.lake_places import storage_in
from strom.errors import LakeCorrupt, LakeSnapshotNotFound, OffsetOutOfRange
from strom.lake.files.file_reader import _slice
from strom.lake.files.statistics import BOUND_BYTES_MAX, _cut_bytes, _cut_text
from strom.lake.iceberg.iceberg_schema import iceberg_schema
from strom.lake.iceberg.summary import OFFSETS_FILE, LakeOffsets, held_property, read_summary, write_summary
from strom.lake.read.union_planner import _all_hot, _hot_part, _not_taken_over
from strom.lake.read.warehouses import Warehouses
from strom.lake.upkeep.compaction_plan import _own_stretches
from strom.lake.upkeep.maintenance import Maintenance
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.schema import Column, Schema
from strom.model.type_text import parse

LONG = BOUND_BYTES_MAX + 20


@given(st.binary(max_size=LONG) | st.binary(min_size=BOUND_BYTES_MAX, max_size=LONG))
def test_cut_bounds_of_bytes_lie_around_the_value(raw: bytes) -> None:
    lower, upper = _cut_bytes(raw, False), _cut_bytes(raw, True)
    assert lower is not None
    assert lower <= raw
    assert upper is None or upper >= raw
    assert len(lower) <= BOUND_BYTES_MAX


@given(st.text(max_size=LONG) | st.text(min_size=BOUND_BYTES_MAX, max_size=LONG))
def test_cut_bounds_of_text_lie_around_the_value_and_are_text(text: str) -> None:
    raw = text.encode("utf-8", "ignore")
    lower, upper = _cut_text(raw, False), _cut_text(raw, True)
    assert lower is not None
    assert lower <= raw
    assert lower.decode() is not None
    assert upper is None or (upper >= raw and upper.decode() is not None)


@pytest.mark.parametrize(
    ("raw", "upper"),
    [
        (b"a" * LONG, b"a" * (BOUND_BYTES_MAX - 1) + b"b"),
        (b"a" + b"\xff" * LONG, b"b"),
        (b"\xff" * LONG, None),
        (b"short", b"short"),
    ],
)
def test_an_upper_bound_is_the_next_after_all_that_begin_so(raw: bytes, upper: bytes | None) -> None:
    assert _cut_bytes(raw, True) == upper


def test_dead_rows_are_numbered_within_their_row_group() -> None:
    dead = np.array([1, 10, 12, 25])
    groups = [_slice(dead, start, start + 10).tolist() for start in (0, 10, 20)]
    assert groups == [[1], [0, 2], [5]]


@pytest.mark.parametrize(("end", "read"), [(9, True), (10, False), (11, False)])
def test_a_partition_made_again_is_read_of_the_lake_until_it_was_given_all_its_rows(
    end: int, read: bool
) -> None:
    old, new = BucketId(1, 1, 0), BucketId(1, 2, 0)
    chosen = SimpleNamespace(buckets=[(new, "a")], gone=[(old, "a")], tiered=lambda _: Tiered(10, 0))
    found = _not_taken_over(cast(Any, chosen), {new: cast(Any, SimpleNamespace(end=end))})
    assert found == ([(old, "a")] if read else [])


def hot_part(start: int, end: int) -> Any:
    """The hot part of a log bucket of which the lake holds the offsets below 10."""
    bucket = BucketId(1, None, 0)
    table = SimpleNamespace(table_id=1, path="t", description=SimpleNamespace(has_primary_key=False))
    chosen = SimpleNamespace(
        wanted=SimpleNamespace(table=table), buckets=[(bucket, None)], gone=[], tiered=lambda _: Tiered(10, 0)
    )
    cut = SimpleNamespace(start=start, end=end, epoch=0, damaged=False)
    plan, _ = _hot_part(cast(Any, chosen), {bucket: cast(Any, cut)})
    return [(one.start, one.end) for one in cast(Any, plan).ranges]


def test_a_log_may_begin_where_the_lake_ends_and_not_later() -> None:
    assert hot_part(start=0, end=15) == [(10, 15)]
    assert hot_part(start=10, end=15) == [(10, 15)], "retention took all that the lake holds"
    assert hot_part(start=10, end=10) == []
    with pytest.raises(OffsetOutOfRange, match="lost the offsets from 10 to 11"):
        hot_part(start=11, end=15)


@pytest.mark.parametrize(
    ("keyed", "start", "end", "enough"),
    [
        (False, 3, 10, True),
        (False, 0, 12, True),
        (False, 4, 10, False),  # retention took what the lake has
        (False, 3, 9, False),  # the log lost its end
        (True, 8, 10, True),  # a primary-key table has every live row
        (True, 8, 9, False),
    ],
)
def test_a_quarantined_lake_is_passed_over_only_where_the_servers_have_all_of_it(
    keyed: bool, start: int, end: int, enough: bool
) -> None:
    bucket = BucketId(1, None, 0)
    table = SimpleNamespace(description=SimpleNamespace(has_primary_key=keyed))
    chosen = cast(Any, SimpleNamespace(wanted=SimpleNamespace(table=table), buckets=[(bucket, None)]))
    record = SimpleNamespace(offsets={LakeKey(None, 0): Tiered(10, 0)}, start_of=lambda *_: 3)
    wrong = cast(Any, SimpleNamespace(record=record))
    cut = cast(Any, SimpleNamespace(start=start, end=end))
    assert _all_hot(chosen, wrong, {bucket: cut}) is enough
    assert not _all_hot(chosen, wrong, {}), "the servers refused to say where it ends"


def test_the_words_of_a_snapshot_are_its_own_whatever_the_table_says_by_now(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    first = LakeOffsets(1, "a", {LakeKey(None, number): Tiered(number, 0) for number in range(500)})
    later = replace(first, round="b")
    summary = write_summary(storage, f"file://{tmp_path}/t", 7, first)
    assert read_summary(storage, summary, held_property(later)) == first, "after a rollback"
    storage.delete(summary[OFFSETS_FILE])
    assert read_summary(storage, summary, held_property(first)) == first, (
        "somebody took the file for an orphan"
    )
    with pytest.raises(LakeCorrupt):
        read_summary(storage, summary, held_property(later))


@pytest.mark.parametrize(("time_ms", "expected"), [(100, 1), (149, 1), (150, 2), (10**6, 2), (99, None)])
def test_the_snapshot_of_a_time_is_the_last_that_was_committed_by_then(
    time_ms: int, expected: int | None
) -> None:
    async def snapshots(*_: Any) -> list[Any]:
        return [
            SimpleNamespace(snapshot_id=1, committed_ms=100),
            SimpleNamespace(snapshot_id=2, committed_ms=150),
        ]

    async def main() -> int | None:
        house = cast(Any, SimpleNamespace(snapshots=snapshots))
        try:
            return await Warehouses.snapshot_at(
                house, cast(Any, None), cast(Any, SimpleNamespace(path="t")), time_ms
            )
        except LakeSnapshotNotFound:
            return None

    assert asyncio.run(main()) == expected


def test_of_several_threads_one_works_at_a_table() -> None:
    maintenance, table, other = Maintenance(), SimpleNamespace(table_id=1), SimpleNamespace(table_id=2)
    with maintenance._at_work(cast(Any, table)) as first:
        assert first is not None
        for _ in range(2):
            with maintenance._at_work(cast(Any, table)) as second:
                assert second is None, "also after another one came and went"
        with maintenance._at_work(cast(Any, other)) as elsewhere:
            assert elsewhere is not None
    with maintenance._at_work(cast(Any, table)) as again:
        assert again is first


def test_files_that_others_files_lie_over_are_not_put_together() -> None:
    def file(name: str, first: int, last: int) -> Any:
        return SimpleNamespace(path=f"file:///t/data/{name}.parquet", first_offset=first, last_offset=last)

    files = [file("strom-a", 0, 9), file("strom-b", 10, 19), file("theirs", 20, 50), file("strom-c", 30, 39)]
    files += [file("strom-d", 51, 60), file("strom-e", 61, 70)]
    found = [[one.path[15:-8] for one in stretch] for stretch in _own_stretches(files)]
    assert [stretch for stretch in found if stretch] == [
        ["strom-a", "strom-b"],
        ["strom-c", "strom-d", "strom-e"],
    ]
    over = [file("strom-a", 0, 9), file("strom-b", 5, 14), file("strom-c", 15, 19)]
    found = [[one.path[15:-8] for one in stretch] for stretch in _own_stretches(over)]
    assert [stretch for stretch in found if stretch] == [["strom-a"], ["strom-b", "strom-c"]]


@pytest.mark.parametrize(
    ("kind", "has_key"), [("bigint", True), ("string", True), ("float", False), ("double", False)]
)
def test_a_key_that_iceberg_does_not_allow_is_not_declared_there(kind: str, has_key: bool) -> None:
    columns = (Column(0, "id", parse(f"{kind} not null")), Column(1, "v", parse("int")))
    found = iceberg_schema(Schema(1, columns, ("id",)), 1)
    assert len(found.identifier_field_ids) == has_key
