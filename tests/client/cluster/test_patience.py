"""A client waits for a server that makes progress, not for one that keeps failing."""

from __future__ import annotations

import pytest

from strom.client.cluster.patience import FORGET_S, Patience
from strom.errors import Busy, KernelsCompiling
from strom.testing.clock import ManualClock


def test_every_new_step_counts_and_no_other_error() -> None:
    clock = ManualClock()
    patience = Patience(clock)
    patience.hear(Busy("later"))
    assert patience.moved_at == float("-inf")
    for done in range(3):
        clock.advance(1)
        patience.hear(KernelsCompiling(f"compiling: {done} of 8"))
        assert patience.moved_at == clock.monotonic()
        clock.advance(1)
        patience.hear(KernelsCompiling(f"compiling: {done} of 8"))
        assert patience.moved_at == clock.monotonic() - 1


def test_steps_that_fail_and_are_tried_again_are_no_progress() -> None:
    clock = ManualClock()
    patience = Patience(clock)
    words = ["compiling", "compiling: 0 of 8", "compiling failed: no room"]
    for word in words * 10:
        clock.advance(5)
        patience.hear(KernelsCompiling(word))
    assert patience.moved_at == clock.monotonic() - 27 * 5


def test_after_a_while_without_a_word_the_same_steps_are_news() -> None:
    clock = ManualClock()
    patience = Patience(clock)
    patience.hear(KernelsCompiling("compiling: 0 of 8"))
    clock.advance(FORGET_S + 1)
    patience.hear(KernelsCompiling("compiling: 0 of 8"))
    assert patience.moved_at == clock.monotonic()


def test_progress_is_told_with_its_step_and_not_more_often_than_every_two_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    patience = Patience(clock)
    for done in range(9):
        patience.hear(KernelsCompiling(f"compiling: {done} of 8"))
        clock.advance(0.5)
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"the server is compiling: {done} of 8; waiting for it" for done in (0, 4, 8)]
