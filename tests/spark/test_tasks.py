"""How a plan becomes tasks: nothing lost, nothing twice, large ranges cut and small ones together."""

from __future__ import annotations

import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from strom.client.plan.key_plan import Instant, KeyScanPlan
from strom.client.plan.log_plan import BucketRange, ScanPlan
from strom.model.bucket import BucketId
from strom.spark.connect.tasks import TASK_BYTES_MIN, Part, ReadTask, Sizes, cut_and_packed, width

MB = 1024 * 1024


def ranges(*rows: int) -> list[Part]:
    return [BucketRange(BucketId(1, None, number), None, 5, 5 + count) for number, count in enumerate(rows)]


def instants(*rows: int) -> list[Part]:
    return [Instant(BucketId(1, None, number), None, count, 3) for number, count in enumerate(rows)]


def covered(groups: list[tuple[Part, ...]]) -> list[tuple[int, int]]:
    found = []
    for part in (part for group in groups for part in group):
        end = part.at if isinstance(part, Instant) and part.end is None else part.end
        assert end is not None
        found += [(part.bucket.bucket, at) for at in range(part.start, end)]
    return found


@given(
    rows=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    row_bytes=st.sampled_from([1, 1000, MB]),
    split_rows=st.one_of(st.none(), st.integers(1, 40)),
    kind=st.sampled_from([ranges, instants]),
)
@settings(max_examples=100, deadline=None)
def test_every_offset_is_read_by_exactly_one_task(
    rows: list[int], row_bytes: int, split_rows: int | None, kind
) -> None:  # type: ignore[no-untyped-def]
    parts = kind(*rows)
    sizes = Sizes({part.bucket: float(row_bytes) for part in parts})
    groups = cut_and_packed(parts, sizes, split_bytes=8 * MB, split_rows=split_rows)
    assert sorted(covered(groups)) == sorted(covered([tuple(parts)]))
    if split_rows is not None:
        assert all(sum(width(part) for part in group) <= split_rows for group in groups)


def test_small_ranges_share_a_task_and_large_ones_are_cut() -> None:
    small = ranges(10, 10, 10)
    assert len(cut_and_packed(small, Sizes({}), split_bytes=64 * MB, split_rows=None)) == 1
    (large,) = ranges(1000)
    sizes = Sizes({large.bucket: float(MB)})
    groups = cut_and_packed([large], sizes, split_bytes=64 * MB, split_rows=None)
    assert 15 <= len(groups) <= 17
    assert all(sizes.of(part) <= 70 * MB for group in groups for part in group)


def test_a_table_of_medium_size_still_keeps_many_cores_busy() -> None:
    (medium,) = ranges(48)
    sizes = Sizes({medium.bucket: float(MB)})
    groups = cut_and_packed([medium], sizes, split_bytes=64 * MB, split_rows=None)
    assert len(groups) == 8
    assert all(sizes.of(group[0]) >= TASK_BYTES_MIN for group in groups)


def test_a_task_is_plain_data_that_says_what_the_client_reads() -> None:
    task = ReadTask(1, 2, (*ranges(3), *instants(4)))
    again = pickle.loads(pickle.dumps(task))
    plans = again.plans
    assert [type(plan) for plan in plans] == [KeyScanPlan, ScanPlan]
    assert len(pickle.dumps(ReadTask(1, 2, tuple(ranges(3))))) < 500


def test_as_many_tasks_as_can_run_at_once() -> None:
    whole = BucketRange(BucketId(1, None, 0), None, 0, 1_000_000)
    sizes = Sizes({whole.bucket: 80.0})
    for cores in (1, 2, 5):
        groups = cut_and_packed([whole], sizes, split_bytes=128 * MB, split_rows=None, tasks_wanted=cores)
        assert len(groups) == cores


def test_buckets_that_are_about_equal_are_shared_out_evenly() -> None:
    parts = ranges(100, 101, 99, 100)
    sizes = Sizes({part.bucket: float(MB) for part in parts})
    groups = cut_and_packed(parts, sizes, split_bytes=1000 * MB, split_rows=None, tasks_wanted=2)
    assert [len(group) for group in groups] == [2, 2]


def test_a_little_beside_much_that_others_read_is_one_task() -> None:
    parts = ranges(20, 20, 20, 20)
    sizes = Sizes({part.bucket: float(MB) for part in parts})

    def tasks(beside: int) -> list[int]:
        groups = cut_and_packed(
            parts, sizes, split_bytes=128 * MB, split_rows=None, tasks_wanted=2, beside=beside
        )
        return [len(group) for group in groups]

    assert tasks(0) == [2, 2]
    assert tasks(40 * MB) == [2, 2]
    assert tasks(800 * MB) == [4]


def test_tasks_can_be_smaller_than_is_worth_it_where_somebody_says_so() -> None:
    parts = ranges(40)
    groups = cut_and_packed(parts, Sizes({parts[0].bucket: float(MB)}), split_bytes=MB, split_rows=None)
    assert len(groups) == 40
