"""Requests for many parts: few, not much more than was asked for, none too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.runtime.objects.range_plan import (
    FILTERED,
    KIB,
    MIB,
    PART_BYTES,
    UNFILTERED,
    Coalescing,
    Part,
    plan,
)

PARTS = st.lists(st.builds(Part, st.integers(0, 5_000), st.integers(0, 800)), max_size=30)
COALESCING = st.builds(Coalescing, st.integers(0, 1_000), st.sampled_from([1.0, 1.25, 2.0, 4.0]))


def test_parts_that_touch_are_one_request() -> None:
    assert plan([Part(100, 50), Part(150, 50), Part(0, 100)]) == [(0, 200)]


def test_a_short_gap_is_fetched_too_and_a_long_one_is_not() -> None:
    whole = Part(0, MIB)
    assert len(plan([whole, Part(MIB + 64 * KIB, MIB)])) == 1
    assert len(plan([whole, Part(MIB + 64 * KIB + 1, MIB)])) == 2
    assert len(plan([whole, Part(MIB + 256 * KIB, MIB)], FILTERED)) == 1
    assert len(plan([whole, Part(MIB + 256 * KIB + 1, MIB)], FILTERED)) == 2


def test_gaps_are_not_fetched_when_they_would_be_most_of_it() -> None:
    """Arrival order: 64 KB of a column in each 128 KB. Every gap is short enough, and together they are half of it."""
    parts = [Part(number * 128 * KIB, 64 * KIB) for number in range(20)]
    fetches = plan(parts, UNFILTERED)
    assert len(fetches) == 20
    assert len(plan(parts, FILTERED)) == 1


def test_a_long_run_is_split_evenly() -> None:
    assert plan([Part(7, 9 * MIB)]) == [(7, 3 * MIB), (7 + 3 * MIB, 3 * MIB), (7 + 6 * MIB, 3 * MIB)]
    assert plan([Part(0, PART_BYTES)]) == [(0, PART_BYTES)]


def test_no_part_begins_before_the_object() -> None:
    with pytest.raises(ValueError):
        plan([Part(-1, 5)])


@given(PARTS, COALESCING, st.integers(1, 700))
def test_every_plan_brings_all_and_wastes_within_its_bound(
    parts: list[Part], coalescing: Coalescing, part_bytes: int
) -> None:
    fetches = plan(parts, coalescing, part_bytes)
    wanted = {byte for part in parts for byte in range(part.position, part.end)}
    fetched = [byte for fetch in fetches for byte in range(fetch.position, fetch.end)]
    assert wanted <= set(fetched)
    assert len(fetched) == len(set(fetched)), "no byte twice"
    assert fetches == sorted(fetches)
    assert all(0 < fetch.length <= part_bytes for fetch in fetches)
    assert len(fetched) <= coalescing.waste_max * len(wanted)
