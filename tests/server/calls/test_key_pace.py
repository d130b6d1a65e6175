"""Where lookups are done: on the loop, unless they have shown to take long there."""

from __future__ import annotations

from strom.runtime.effort import Effort, effort_of_thread
from strom.server.calls.keys.bucket_lookup import (
    ASIDE_S,
    INLINE_CPU_S_MAX,
    INLINE_KEYS_MAX,
    INLINE_KEYS_MOST,
    INLINE_S_MAX,
    Pace,
)


class Thread:
    """A clock, and what a thread did by it."""

    def __init__(self) -> None:
        self.now = 10.0
        self.effort = Effort(1.0, 5)
        self.pace = Pace(lambda: self.now, lambda: self.effort)

    def lookup(self, seconds: float, *, cpu_s: float = 0.0, faults: int = 0) -> None:
        began = self.pace.begin()
        self.now += seconds
        self.effort = Effort(self.effort.cpu_s + cpu_s, self.effort.faults + faults)
        self.pace.end(began)


def test_many_keys_stay_on_the_loop_while_that_is_quick() -> None:
    thread = Thread()
    for _ in range(3):
        assert thread.pace.allows(INLINE_KEYS_MOST)
        thread.lookup(INLINE_S_MAX / 2, cpu_s=INLINE_S_MAX / 2, faults=1)
    assert not thread.pace.allows(INLINE_KEYS_MOST + 1)


def test_after_a_slow_one_many_keys_go_aside_for_a_while_and_few_do_not() -> None:
    for slow in ({"faults": 1}, {"cpu_s": 1.1 * INLINE_CPU_S_MAX}):
        thread = Thread()
        thread.lookup(INLINE_S_MAX + slow.get("cpu_s", 0.0), **slow)
        assert not thread.pace.allows(INLINE_KEYS_MAX + 1)
        assert thread.pace.allows(INLINE_KEYS_MAX)
        thread.now += ASIDE_S
        assert thread.pace.allows(INLINE_KEYS_MAX + 1)


def test_a_loop_that_only_had_to_wait_for_a_processor_goes_on_as_before() -> None:
    thread = Thread()
    thread.lookup(20 * INLINE_CPU_S_MAX, cpu_s=0.9 * INLINE_CPU_S_MAX)
    assert thread.pace.allows(INLINE_KEYS_MOST)


def test_the_effort_of_a_thread_grows_with_its_work() -> None:
    before = effort_of_thread()
    while effort_of_thread().cpu_s == before.cpu_s:
        sum(range(1000))
    assert effort_of_thread().faults >= before.faults
