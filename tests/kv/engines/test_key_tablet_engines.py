"""Every merge engine gives the same through the whole tablet as one change at a time, whatever happens between."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kv.engine_world import COLOURS, ENGINES, KEYS, Change, EngineWorld

CHANGES = st.lists(
    st.builds(
        Change,
        st.sampled_from(KEYS),
        st.integers(0, 3).map(lambda drawn: drawn == 3),
        st.sampled_from(COLOURS),
        st.none() | st.integers(-3, 9),
        st.none() | st.sampled_from(["", "x", "yz"]),
    ),
    min_size=1,
    max_size=5,
)
WRITES = st.tuples(st.just("write"), CHANGES, st.none() | st.integers(0, 2))
EVENTS = st.sampled_from(
    ["carry", "merge", "reclaim", "snapshot", "retain", "finish", "close", "kill", "power_loss"]
).map(lambda name: (name,))
HISTORIES: st.SearchStrategy[list[tuple[Any, ...]]] = st.lists(WRITES | WRITES | EVENTS, max_size=14)


@pytest.mark.slow
@pytest.mark.parametrize("engine", list(ENGINES))
def test_the_tablet_is_what_one_change_after_the_other_gives(engine: str) -> None:
    behaviors = ["ignore", "disable"] if ENGINES[engine].keeps_deleted else ["allow", "ignore", "disable"]

    @settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(["FULL", "WAL"]), st.sampled_from([None, *behaviors]), HISTORIES)
    def check(image: str, behavior: str | None, history: list[tuple[Any, ...]]) -> None:
        world = EngineWorld(engine, image, behavior)
        for name, *arguments in history:
            world.now += 1
            getattr(world, name)(*arguments)
            assert world.seen() == world.expected
        world.finish()
        world.kill()
        assert world.seen() == world.expected

    check()
