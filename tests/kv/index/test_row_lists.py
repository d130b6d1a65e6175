"""Lists of rows by tuple hash against a plain dict of sets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.kv.index.row_lists import RowLists

HASHES = st.sampled_from([0, 1, 1024, 2**63, 2**64 - 1])
ROWS = st.integers(0, 25)


def rows_of(links: RowLists, hash_: int) -> npt.NDArray[np.int64]:
    """The rows of one list, the most recently linked first."""
    return links.rows_many(np.array([hash_], np.uint64))[1]


@settings(max_examples=100, deadline=None)
@given(
    steps=st.lists(
        st.one_of(st.lists(st.tuples(ROWS, HASHES), max_size=12), st.lists(ROWS, max_size=12).map(set)),
        max_size=15,
    )
)
def test_a_list_has_exactly_the_rows_that_were_linked_last_to_its_hash(steps: list[object]) -> None:
    links, model = RowLists(), dict[int, int]()
    for step in steps:
        if isinstance(step, list):
            links.link(np.array([r for r, _ in step], np.int64), np.array([h for _, h in step], np.uint64))
            model.update(step)
        else:
            links.unlink(np.array(sorted(step), np.int64))  # type: ignore[call-overload]
            model = {row: h for row, h in model.items() if row not in step}  # type: ignore[operator]
        asked = [0, 1, 5, 1024, 2**63, 2**64 - 1]
        which, rows = links.rows_many(np.array(asked, np.uint64))
        assert len(rows) == links.linked == len(model)
        assert {(asked[w], int(r)) for w, r in zip(which, rows, strict=True)} == {
            (h, r) for r, h in model.items()
        }
        hashes, linked = links.hash_of(np.arange(-1, 30))
        assert {
            int(r): int(h) for r, h, is_ in zip(range(-1, 30), hashes, linked, strict=True) if is_
        } == model


def test_linking_again_to_the_same_hash_moves_nothing() -> None:
    links = RowLists()
    links.link(np.arange(3), np.full(3, 9, np.uint64))
    links.link(np.array([0]), np.array([9], np.uint64))
    assert rows_of(links, 9).tolist() == [2, 1, 0]


def test_a_hot_tuple_of_a_million_rows_costs_no_more_per_row() -> None:
    links, rows = RowLists(), np.arange(1_000_000)
    links.link(rows, np.full(len(rows), 77, np.uint64))
    assert len(rows_of(links, 77)) == len(rows)
    links.unlink(rows[::-2].copy())
    assert np.array_equal(np.sort(rows_of(links, 77)), rows[::2])
    links.link(rows[::2], rows[::2].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    assert rows_of(links, 77).tolist() == []
    assert links.linked == 500_000
    assert rows_of(links, 4 * 0x9E3779B97F4A7C15 % 2**64).tolist() == [4]
    links.unlink(rows)
    assert links.linked == 0
