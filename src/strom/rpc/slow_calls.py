"""Calls that occupy the loop for long: decoding a request of a hundred thousand fields, encoding as large an answer.

They are rare and legitimate, but many connections making them at once would starve the others. So while there are small
calls, a connection that occupied the loop for long waits before its next request: together they get a tenth of the
time.

A call that merely waited while other processes had the core must not be punished for it. So after a slow call, only
CPU time of the loop counts. Reading it costs a tenth of a small call, so it is not read before.
"""

from __future__ import annotations

from collections.abc import Callable

from strom.rpc.budget import Budget
from strom.runtime.clock import thread_s

LONG_S = 0.003
"""Less is ignored."""
REST_PER_WORK = 9.0
"""How many times as long the loop is reserved for others."""
WAIT_S_MAX = 20.0
RECENT_S = 0.05
"""How long after a small call the next one is expected."""


WATCHFUL_S = 60.0
"""How long after a slow call the next one is expected."""


class SlowCalls:
    """When the next slow call may run, over all connections of a listener."""

    def __init__(self, budget: Budget, worked_s: Callable[[], float] = thread_s) -> None:
        self._budget = budget
        self._worked_s = worked_s
        self._until = float("-inf")
        self._watchful_until = float("-inf")

    def others_ask(self, now: float) -> bool:
        """Whether there are small calls."""
        return now - self._budget.small_at <= RECENT_S

    def begin(self, now: float) -> float | None:
        """A connection gets the loop. Pass the result to ``had_it_s``."""
        return self._worked_s() if now < self._watchful_until else None

    def had_it_s(self, by_clock_s: float, began: float | None) -> float:
        """How long the loop really worked, of the time that has passed."""
        return by_clock_s if began is None else min(by_clock_s, self._worked_s() - began)

    def wait_s(self, took_s: float, now: float) -> float:
        """How long to wait after occupying the loop for that long."""
        if took_s < LONG_S or now - self._budget.small_at > RECENT_S + took_s:
            return 0.0
        self._watchful_until = now + WATCHFUL_S
        self._until = min(max(self._until, now) + REST_PER_WORK * took_s, now + WAIT_S_MAX)
        return self._until - now
