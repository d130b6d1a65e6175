"""A clock that leaps is not gone by before it was steady for long enough."""

from __future__ import annotations

import logging

import pytest

from strom.runtime.trusted_time import LEAP_MS, STOP_MS, ClockSighting, NotAhead, StampingClock, TrustedTime
from strom.testing.clock import START_MS, ManualClock

DAY_S = 24 * 3600.0
DAY_MS = 24 * 3600 * 1000
HOUR_S = 3600.0


def trusted(clock: ManualClock, seen: ClockSighting | None = None) -> TrustedTime:
    return TrustedTime(clock, trust_after_ms=DAY_MS, seen=seen)


def leap(clock: ManualClock, days: float) -> None:
    clock.set_now_ms(clock.now_ms() + int(days * DAY_MS))


def test_it_is_the_clock_while_that_moves_as_time_does() -> None:
    clock = ManualClock()
    time = trusted(clock)
    for _ in range(50):
        clock.advance(HOUR_S)
        clock.set_now_ms(clock.now_ms() + 1500)  # slewed
        assert time.now_ms() == clock.now_ms()
    clock.set_now_ms(clock.now_ms() + LEAP_MS - 1)
    assert time.now_ms() == clock.now_ms()
    assert time.ahead_ms() == 0


def test_a_leap_ahead_changes_nothing_until_the_clock_was_steady_for_a_day(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    time = trusted(clock)
    clock.advance(HOUR_S)
    leap(clock, 400)
    with caplog.at_level(logging.WARNING):
        assert time.now_ms() == START_MS + 3600_000
        clock.advance(23 * HOUR_S)
        assert time.now_ms() == START_MS + DAY_MS  # it goes on at the pace of time
    assert [one.getMessage().startswith("the clock is 400 days") for one in caplog.records] == [True]
    assert time.ahead_ms() == 400 * DAY_MS
    clock.advance(HOUR_S)
    assert time.now_ms() == clock.now_ms() == START_MS + 401 * DAY_MS + 3600_000
    assert time.ahead_ms() == 0


@pytest.mark.parametrize(
    ("days", "level", "words"),
    [
        (400, logging.WARNING, "the clock is 400 days, 0:00:00 ahead of what it should be"),
        (-3, logging.WARNING, "the clock is 3 days, 0:00:00 behind what it should be"),
        (0.5, logging.INFO, "the clock is 12:00:00 ahead of what it should be"),
        (-0.5, logging.INFO, "the clock is 12:00:00 behind what it should be"),
    ],
)
def test_the_log_says_once_how_far_the_clock_leapt_and_where_to(
    caplog: pytest.LogCaptureFixture, days: float, level: int, words: str
) -> None:
    clock = ManualClock()
    time = trusted(clock)
    leap(clock, days)
    with caplog.at_level(logging.INFO):
        time.now_ms()
        time.now_ms()
    assert [(one.levelno, one.getMessage().startswith(words)) for one in caplog.records] == [(level, True)]
    assert "before it was steady for 1 day" in caplog.text


def test_a_clock_that_is_set_right_again_is_gone_by_at_once() -> None:
    clock = ManualClock()
    time = trusted(clock)
    leap(clock, 400)
    assert time.now_ms() == START_MS
    clock.advance(HOUR_S)
    leap(clock, -400)
    assert time.now_ms() == clock.now_ms() == START_MS + 3600_000
    assert time.ahead_ms() == 0


def test_a_clock_that_leaps_again_has_to_be_steady_from_then() -> None:
    clock = ManualClock()
    time = trusted(clock)
    for _ in range(10):
        leap(clock, 1)
        clock.advance(20 * HOUR_S)
        assert time.now_ms() < START_MS + 9 * DAY_MS
    assert time.now_ms() == START_MS + 200 * 3600_000


def test_it_is_never_ahead_of_the_clock() -> None:
    clock = ManualClock()
    time = trusted(clock)
    clock.advance(DAY_S)
    leap(clock, -30)
    assert time.now_ms() == clock.now_ms()
    clock.advance(2 * DAY_S)
    assert time.now_ms() == clock.now_ms()
    leap(clock, 30)
    assert time.now_ms() == clock.now_ms() - 30 * DAY_MS, "back was believed, and ahead is a leap from there"


def test_a_machine_that_slept_is_no_leap(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    time = trusted(clock)
    with caplog.at_level(logging.INFO):
        clock.sleep(60 * DAY_S)
        assert time.now_ms() == clock.now_ms()
    assert caplog.records == []


@pytest.mark.parametrize("off", [False, True], ids=["the machine was up", "the machine was off"])
def test_a_stop_over_the_weekend_is_no_leap(off: bool, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    with caplog.at_level(logging.INFO):
        for _ in range(20):
            seen = trusted(clock).seen()
            clock.boot(3 * DAY_S) if off else clock.advance(3 * DAY_S)
            time = trusted(clock, seen)
            assert (time.now_ms(), time.ahead_ms()) == (clock.now_ms(), 0)
            clock.advance(60)
            assert time.now_ms() == clock.now_ms()
    assert caplog.records == [], "stops do not add up"


def test_while_the_machine_stays_up_a_stop_may_be_of_any_length_and_no_leap_is_taken_for_one() -> None:
    clock = ManualClock()
    seen = trusted(clock).seen()
    clock.advance(100 * DAY_S)
    assert trusted(clock, seen).now_ms() == clock.now_ms()
    leap(clock, 1)
    assert trusted(clock, seen).now_ms() == clock.now_ms() - DAY_MS


def test_a_start_after_a_boot_goes_by_what_was_seen_last_when_the_clock_is_too_far_ahead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    seen = trusted(clock).seen()
    clock.boot(400 * DAY_S)
    time = trusted(clock, seen)
    with caplog.at_level(logging.INFO):
        assert time.now_ms() == START_MS
        clock.advance(DAY_S)
        assert time.now_ms() == clock.now_ms()
    assert [one.getMessage()[:21] for one in caplog.records] == [
        "the clock is 400 days",
        "the clock was steady ",
    ]


def test_a_leap_that_was_seen_is_no_stop_after_the_next_boot() -> None:
    clock = ManualClock()
    time = trusted(clock)
    leap(clock, 10)
    assert time.now_ms() == START_MS
    seen = time.seen()
    clock.boot(60)
    time = trusted(clock, seen)
    assert time.now_ms() == START_MS, "ten days ahead, as it was before"
    leap(clock, -8)
    assert time.now_ms() == clock.now_ms(), "it was set right: two days are a stop"


def test_a_leap_that_was_seen_is_steady_over_restarts() -> None:
    clock = ManualClock()
    time = trusted(clock)
    leap(clock, 400)
    for hour in range(24):
        assert time.now_ms() == START_MS + hour * 3600_000
        clock.advance(HOUR_S)
        time = trusted(clock, time.seen())
    assert time.now_ms() == clock.now_ms()


def test_a_clock_without_a_battery_that_is_set_by_the_network_is_gone_by_at_once() -> None:
    clock = ManualClock()
    seen = trusted(clock).seen()
    clock.boot(2 * DAY_S)
    right = clock.now_ms()
    clock.set_now_ms(0)
    time = trusted(clock, seen)
    assert time.now_ms() == 0
    clock.set_now_ms(right)
    assert time.now_ms() == right


def test_what_an_older_version_saw_counts() -> None:
    clock = ManualClock()
    assert trusted(clock, ClockSighting(START_MS - STOP_MS)).now_ms() == START_MS
    assert trusted(clock, ClockSighting(START_MS - STOP_MS - 1)).now_ms() == START_MS - STOP_MS - 1


def test_a_clock_that_is_held_back_goes_on_at_the_pace_of_time() -> None:
    clock = ManualClock()
    behind = NotAhead(clock, START_MS + 5)
    assert behind.now_ms() == START_MS
    held = NotAhead(clock, START_MS - DAY_MS)
    clock.advance(5)
    assert (held.now_ms(), held.monotonic()) == (START_MS - DAY_MS + 5000, 5.0)


def test_stamps_follow_small_leaps_and_no_large_ones() -> None:
    clock = ManualClock()
    time = trusted(clock)
    stamps = StampingClock(time)
    leap(clock, 0.5)
    assert stamps.now_ms() == clock.now_ms()
    leap(clock, 400)
    assert stamps.now_ms() == START_MS
    clock.advance(5)
    assert (stamps.now_ms(), stamps.monotonic()) == (START_MS + 5000, 5.0)


def test_stamps_are_of_today_after_a_stop_of_weeks_and_of_no_other_year() -> None:
    clock = ManualClock()
    stopped = StampingClock(trusted(clock, ClockSighting(START_MS - 60 * DAY_MS)))
    assert stopped.now_ms() == clock.now_ms()
    clock.advance(5)
    assert stopped.now_ms() == clock.now_ms()
    clock = ManualClock()
    stopped = StampingClock(trusted(clock, ClockSighting(START_MS - 3 * DAY_MS)))
    assert stopped.now_ms() == clock.now_ms()
    leap(clock, 2)
    assert stopped.now_ms() == START_MS, "this leap was seen"
    clock = ManualClock()
    assert (
        StampingClock(trusted(clock, ClockSighting(START_MS - 400 * DAY_MS))).now_ms()
        == START_MS - 400 * DAY_MS
    )
