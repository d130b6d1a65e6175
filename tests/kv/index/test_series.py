"""The series of replaced versions against a plain list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strom.errors import StoreCorrupt
from strom.kv.index import series as module
from strom.kv.index.series import Series
from strom.kv.versions import NONE

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 3), min_size=1, max_size=8)),
        st.tuples(st.just("cut"), st.integers(0, 4)),
        st.tuples(st.just("trim"), st.integers(0, 3)),
        st.tuples(st.just("map"), st.tuples(st.integers(0, 40), st.integers(0, 40))),
        st.tuples(st.just("reload"), st.integers(1, 9)),
    ),
    max_size=20,
)


class _Model:
    """The previous versions by offset, and what each key's newest is at every offset."""

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.cells: dict[int, int] = {}
        self.newest: list[dict[int, int]] = [{}]  # after each record from ``start`` on

    def append(self, keys: list[int]) -> tuple[list[int], list[int]]:
        """A key of 0 is a record without effect; even offsets write images, odd ones tombstones."""
        offsets, previous = [], []
        for offset, key in enumerate(keys, self.end):
            now = dict(self.newest[-1])
            if key:
                offsets.append(offset)
                previous.append(now.get(key, NONE))
                self.cells[offset] = now.get(key, NONE)
                now[key] = offset << 1 | (offset % 2 == 0)
            self.newest.append(now)
        self.end += len(keys)
        return offsets, previous

    def cut(self, end: int, base: int) -> None:
        del self.newest[end - base + 1 :]
        self.cells = {o: v for o, v in self.cells.items() if o < end}
        self.end = end


@settings(max_examples=100, deadline=None)
@example(steps=[("append", [1, 1, 1, 2]), ("cut", 2), ("append", [0, 0])], base=0)
@example(steps=[("append", [1, 1, 1]), ("map", (0, 1))], base=3)
@given(steps=STEPS, base=st.integers(0, 10))
def test_a_series_tells_the_state_at_every_offset_it_reaches(
    steps: list[tuple[str, object]], base: int
) -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(module, "PIECE_CELLS", 5)
    try:
        series, model = Series(base), _Model(base)
        for name, value in steps:
            series = _step(series, model, base, name, value)
            assert (series.start, series.end) == (model.start, model.end)
            offsets = np.arange(model.start, model.end)
            assert series.snapshot().previous(offsets).tolist() == [
                model.cells.get(o, NONE) for o in offsets.tolist()
            ]
            assert _states(series, model) == {
                below: _known(model, base, below) for below in range(model.start, model.end + 1)
            }
    finally:
        patch.undo()


def _step(series: Series, model: _Model, base: int, name: str, value: object) -> Series:
    if name == "append":
        count = len(value)  # type: ignore[arg-type]
        offsets, previous = model.append(value)  # type: ignore[arg-type]
        series.append(series.end, count, np.array(offsets, np.int64), np.array(previous, np.int64))
    elif name == "cut":
        model.cut(max(model.start, model.end - value), base)  # type: ignore[operator]
        series.cut(model.end)
    elif name == "trim":
        model.start = min(model.start + value, model.end)  # type: ignore[operator]
        series.trim(model.start)
    elif name == "map":
        length = model.end - model.start + 1
        low, high = sorted(model.start + v % length for v in value)  # type: ignore[attr-defined]
        cells = series.snapshot().export(low, high)
        cells.flags.writeable = False
        series.map(low, high, cells)
    else:
        loaded = Series(model.start)
        for low in range(model.start, model.end, value):  # type: ignore[call-overload]
            high = min(low + value, model.end)  # type: ignore[operator]
            loaded.map(low, high, series.snapshot().export(low, high))
        series = loaded
    return series


State = tuple[dict[int, int], list[list[int]]]
"""Each key's newest version below an offset, and which rows below it were replaced, from the start and from there."""


def _states(series: Series, model: _Model) -> dict[int, State]:
    newest = model.newest[-1]
    states: dict[int, State] = {}
    for below in range(model.start, model.end + 1):
        stepped = series.snapshot().step_back(np.array([*newest.values()], np.int64), below).tolist()
        dead = [
            series.snapshot().replaced(low, series.end, below=below).tolist() for low in (model.start, below)
        ]
        states[below] = dict(zip(newest, stepped, strict=True)), dead
    return states


def _known(model: _Model, base: int, below: int) -> State:
    then = model.newest[below - base]
    replaced = [(offset, v >> 1) for offset, v in model.cells.items() if v >= 0 and v & 1 and v >> 1 < below]
    dead = [sorted(row for offset, row in replaced if offset >= low) for low in (model.start, below)]
    return {key: then.get(key, NONE) for key in model.newest[-1]}, dead


def test_a_view_stays_as_it_was() -> None:
    series = Series()
    series.append(0, 2, np.array([0, 1]), np.array([NONE, 1]))
    view = series.snapshot()
    series.append(2, 1, np.array([2]), np.array([2]))
    series.map(0, 2, series.snapshot().export(0, 2))
    series.trim(2)
    assert view.previous(np.array([0, 1])).tolist() == [NONE, 1]
    assert view.replaced(0, 2, below=2).tolist() == [0]
    with pytest.raises(ValueError):
        view.previous(np.array([2]))


def test_what_does_not_follow_is_refused() -> None:
    series = Series(10)
    for base, count, offsets, previous in (
        (9, 1, [9], [NONE]),
        (10, 1, [11], [NONE]),
        (10, 1, [10], [10 << 1]),
        (10, 1, [10], [-2]),
        (10, 1, [10], []),
    ):
        with pytest.raises(ValueError):
            series.append(base, count, np.array(offsets), np.array(previous, np.int64))
    assert series.end == 10
    with pytest.raises(ValueError):
        series.snapshot().export(9, 10)
    with pytest.raises(ValueError):
        series.snapshot().step_back(np.array([10 << 1]), 10)


def test_a_mapped_piece_that_points_forward_is_told_and_does_not_loop() -> None:
    for cell in ((1 << 1) + 1, (5 << 1) + 1, -7):
        series = Series()
        series.map(0, 2, np.array([0, cell]))
        with pytest.raises(StoreCorrupt):
            series.snapshot().step_back(np.array([1 << 1]), 0)
    with pytest.raises(StoreCorrupt):
        Series().map(0, 3, np.array([0, 0]))


def test_mapping_frees_memory() -> None:
    series = Series()
    count = 3 * module.PIECE_CELLS
    series.append(0, count, np.arange(count), np.full(count, NONE))
    before = series.memory_bytes
    series.map(0, count, series.snapshot().export(0, count))
    assert before >= 8 * count
    assert series.memory_bytes == 0
