"""Where lookups are done: on the loop, unless they have shown to take long there."""

from __future__ import annotations

from strom.server.calls.key_reads import ASIDE_S, INLINE_KEYS_MAX, INLINE_KEYS_MOST, INLINE_S_MAX, Pace


def test_many_keys_stay_on_the_loop_while_that_is_quick() -> None:
    now = [10.0]
    pace = Pace(lambda: now[0])
    for _ in range(3):
        began = now[0]
        assert pace.allows(INLINE_KEYS_MOST)
        now[0] += INLINE_S_MAX / 2
        pace.took(began)
    assert not pace.allows(INLINE_KEYS_MOST + 1)


def test_after_a_slow_one_many_keys_go_aside_for_a_while_and_few_do_not() -> None:
    now = [10.0]
    pace = Pace(lambda: now[0])
    now[0] += 2 * INLINE_S_MAX
    pace.took(10.0)
    assert not pace.allows(INLINE_KEYS_MAX + 1)
    assert pace.allows(INLINE_KEYS_MAX)
    now[0] += ASIDE_S
    assert pace.allows(INLINE_KEYS_MAX + 1)
