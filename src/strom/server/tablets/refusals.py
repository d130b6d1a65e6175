"""Refusals that their clients repeat at once.

The peer's clients have no pause between attempts: told that another server leads a bucket, while the metadata that they
ask next still names this one, they ask thousands of times a second. So the first refusals of a bucket are answered at
once, because most clients find the new leader with the next call, and those that follow within a second wait a little.
So does whoever has to wait for kernels: the processor that its attempts would take is the one that compiles.
"""

from __future__ import annotations

from strom.errors import KernelsCompiling, NotLeader
from strom.runtime.clock import Clock

AT_ONCE = 20
"""Refusals of one bucket that are answered at once, in each ``WINDOW_S``."""
WINDOW_S = 1.0
PAUSE_S = 0.1
COMPILING_PAUSE_S = 0.5
BUCKETS_MAX = 10_000


class Refusals:
    """How often clients were refused lately. Belongs to the loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counted: dict[object, tuple[float, int]] = {}
        """By bucket: since when, and how often."""

    def pause_s(self, error: BaseException) -> float:
        """How long to wait before a client is told of an error."""
        if isinstance(error, KernelsCompiling):
            return COMPILING_PAUSE_S
        if not isinstance(error, NotLeader):
            return 0.0
        bucket = error.facts.get("bucket")
        now = self._clock.monotonic()
        began, count = self._counted.get(bucket, (now, 0))
        if now - began > WINDOW_S:
            began, count = now, 0
        if bucket not in self._counted and len(self._counted) >= BUCKETS_MAX:
            self._counted.clear()
        self._counted[bucket] = (began, count + 1)
        return PAUSE_S if count >= AT_ONCE else 0.0
