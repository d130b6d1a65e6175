"""Calls that keep the loop for long: reading a request of a hundred thousand fields, writing as large an answer.

They are rare and rightful, but from many connections at once they would leave nothing to others. So while somebody
asks small things, whoever had the loop for long waits before the next request: together they have a tenth of its time.
"""

from __future__ import annotations

from strom.rpc.budget import Budget

LONG_S = 0.003
"""Less is nobody's concern."""
REST_PER_WORK = 9.0
"""The loop is for others so many times as long."""
WAIT_S_MAX = 20.0
RECENT_S = 0.05
"""For so long after a small call the next one is expected."""


class SlowCalls:
    """When the next one may be, of all connections of a listener."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._until = float("-inf")

    def wait_s(self, took_s: float, now: float) -> float:
        """How long the one waits who had the loop for so long."""
        if took_s < LONG_S or now - self._budget.small_at > RECENT_S + took_s:
            return 0.0
        self._until = min(max(self._until, now) + REST_PER_WORK * took_s, now + WAIT_S_MAX)
        return self._until - now
