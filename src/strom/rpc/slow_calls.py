"""Calls that keep the loop for long: reading a request of a hundred thousand fields, writing as large an answer.

They are rare and rightful, but from many connections at once they would leave nothing to others. So while somebody
asks small things, whoever had the loop for long waits before the next request: together they have a tenth of its time.

A call that merely stood by while others had the core must not queue behind those who did the work. So once somebody
was slow, what counts is the time the loop really worked. Asking the system for it costs as much as a tenth of a small
call, so nobody asks before.
"""

from __future__ import annotations

from collections.abc import Callable

from strom.rpc.budget import Budget
from strom.runtime.clock import thread_s

LONG_S = 0.003
"""Less is nobody's concern."""
REST_PER_WORK = 9.0
"""The loop is for others so many times as long."""
WAIT_S_MAX = 20.0
RECENT_S = 0.05
"""For so long after a small call the next one is expected."""


WATCHFUL_S = 60.0
"""For so long after a slow call the next one is expected."""


class SlowCalls:
    """When the next one may be, of all connections of a listener."""

    def __init__(self, budget: Budget, worked_s: Callable[[], float] = thread_s) -> None:
        self._budget = budget
        self._worked_s = worked_s
        self._until = float("-inf")
        self._watchful_until = float("-inf")

    def others_ask(self, now: float) -> bool:
        """Whether somebody asks small things."""
        return now - self._budget.small_at <= RECENT_S

    def begin(self, now: float) -> float | None:
        """Somebody gets the loop. Hand the result to ``had_it_s``."""
        return self._worked_s() if now < self._watchful_until else None

    def had_it_s(self, by_clock_s: float, began: float | None) -> float:
        """How long somebody really had the loop, of the time that has passed."""
        return by_clock_s if began is None else min(by_clock_s, self._worked_s() - began)

    def wait_s(self, took_s: float, now: float) -> float:
        """How long the one waits who had the loop for so long."""
        if took_s < LONG_S or now - self._budget.small_at > RECENT_S + took_s:
            return 0.0
        self._watchful_until = now + WATCHFUL_S
        self._until = min(max(self._until, now) + REST_PER_WORK * took_s, now + WAIT_S_MAX)
        return self._until - now
