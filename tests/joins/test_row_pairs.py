"""The arithmetic of joins beside loops that anybody can read."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.spark.joins.row_pairs import NONE, PairRows, difference, pairs, portions

GROUPS = 5
groups = st.lists(st.integers(0, GROUPS - 1), max_size=12)


def plain(left: list[int], right: list[int], how: str) -> list[tuple[int, int, int]]:
    found = [(one, at, to) for at, one in enumerate(left) for to, other in enumerate(right) if one == other]
    if how in ("left", "full"):
        found += [(one, at, NONE) for at, one in enumerate(left) if one not in right]
    if how in ("right", "full"):
        found += [(one, NONE, at) for at, one in enumerate(right) if one not in left]
    return sorted(found)


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
@settings(max_examples=100, deadline=None)
@given(left=groups, right=groups)
def test_pairs_are_those_of_the_loops(how: str, left: list[int], right: list[int]) -> None:
    found = pairs(np.array(left, np.int64), np.array(right, np.int64), GROUPS, how)  # type: ignore[arg-type]
    listed = zip(found.group.tolist(), found.left.tolist(), found.right.tolist(), strict=True)
    assert sorted(listed) == plain(left, right, how)


Name = tuple[int, bytes, bytes]
names = st.tuples(st.integers(0, 2), st.sampled_from([b"", b"a", b"ab"]), st.sampled_from([b"", b"a", b"ab"]))
tables = st.dictionaries(names, st.tuples(st.none() | st.integers(0, 1), st.none() | st.sampled_from("xy")))


def rows_of(table: dict[Name, tuple[int | None, str | None]]) -> PairRows:
    return PairRows(
        np.array([name[0] for name in table], np.int64),
        pa.array([name[1] for name in table], pa.binary()),
        pa.array([name[2] for name in table], pa.binary()),
        [
            pa.array([row[0] for row in table.values()], pa.int64()),
            pa.array([row[1] for row in table.values()], pa.string()),
        ],
    )


@settings(max_examples=100, deadline=None)
@given(new=tables, old=tables)
def test_the_difference_makes_the_old_rows_the_new_ones_and_touches_no_other(
    new: dict[Name, tuple[int | None, str | None]], old: dict[Name, tuple[int | None, str | None]]
) -> None:
    change = difference(rows_of(new), rows_of(old))
    written = [list(new)[at] for at in change.write.tolist()]
    deleted = [list(old)[at] for at in change.delete.tolist()]
    assert sorted(written) == sorted(name for name in new if name not in old or old[name] != new[name])
    assert sorted(deleted) == sorted(name for name in old if name not in new)


def test_rows_of_nested_columns_are_written_again() -> None:
    one = PairRows(np.zeros(1, np.int64), pa.array([b"a"]), pa.array([b""]), [pa.array([[1]])])
    change = difference(one, one)
    assert change.write.tolist() == [0]
    assert change.delete.tolist() == []


def test_portions_hold_as_many_groups_as_fit_and_every_group_once() -> None:
    def cut(*sizes: int, most: int = 4) -> list[tuple[int, int]]:
        return list(portions(np.array(sizes, np.int64), most))

    assert cut(2, 2, 2) == [(0, 2), (2, 3)]
    assert cut(4, 4, 0, 1) == [(0, 1), (1, 3), (3, 4)]
    assert cut(9, 1, 9) == [(0, 1), (1, 2), (2, 3)], "one that is too large goes alone"
    assert cut(0, 0) == [(0, 2)]
    assert cut() == []
