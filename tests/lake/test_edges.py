"""What files say of their rows encloses them, and what is dead is counted from where its row group begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.lake.reading import _slice
from strom.lake.statistics import BOUND_BYTES_MAX, _cut_bytes, _cut_text
from strom.lake.union_planner import _not_taken_over
from strom.model.bucket import BucketId
from strom.model.lake import Tiered

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
