"""The budget of bytes in flight over all connections of a server: what is taken is returned, and nobody waits forever.

Memory that is not allocated yet is requested (``take``); memory that already exists is only counted (``add``). A
refused request joins a queue (``wait``) and is called back in order when there is room; the first in the queue is never
overtaken. A request larger than the whole pool succeeds when the pool is empty: a limit must not become a deadlock.

There are two pools, so that large requests never block small ones: a quarter is for small things (waiting calls, the
beginning of every frame), the rest for large ones (the rest of a frame, answers).

A queue that does not move calls for action: ``stuck`` returns what its first entry lacks, and ``press`` asks holders of
memory that merely wait to release it.

Not thread-safe: one event loop owns it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

TRIAL_BYTES = 256 * 1024
"""How much of a frame is charged to the small pool. After that many bytes the frame is known to be real."""
SMALL_PART = 4
"""The small pool is one part in this many."""


class QueuePlace:
    """A place in the queue."""

    __slots__ = ("amount", "called", "gone")

    def __init__(self, amount: int, called: Callable[[], None]) -> None:
        self.amount = amount
        self.called = called
        self.gone = False

    def leave(self) -> None:
        """Leave the queue. Only before the place was called."""
        self.gone = True


class Pool:
    """Bytes in flight, and their limit."""

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self.limit = limit
        self.used = 0
        self.peak = 0
        """The most that was used since it was reset."""
        self._line: deque[QueuePlace] = deque()
        self._seen: QueuePlace | None = None
        self._seen_at = 0.0

    @property
    def full(self) -> bool:
        """Whether more is in flight than should be."""
        return self.used > self.limit

    @property
    def waiting(self) -> bool:
        """Whether the queue is not empty."""
        return self._first() is not None

    def take(self, amount: int) -> bool:
        """Take ``amount`` if there is room and nobody waits for it."""
        if self._first() is not None or not self._fits(amount):
            return False
        self.add(amount)
        return True

    def add(self, amount: int) -> None:
        """Count memory that already exists."""
        self.used += amount
        if self.used > self.peak:
            self.peak = self.used

    def give(self, amount: int) -> None:
        """Return ``amount``, and call those who can continue."""
        self.used -= amount
        assert self.used >= 0, "more given back than taken"
        self.serve()

    def wait(self, amount: int, called: Callable[[], None]) -> QueuePlace:
        """Queue for ``amount`` (0: until it is not full); it is taken before ``called`` is called."""
        place = QueuePlace(amount, called)
        self._line.append(place)
        return place

    def serve(self) -> None:
        """Call those who can continue; also after somebody left the queue."""
        while (place := self._first()) is not None and self._fits(place.amount):
            self._line.popleft()
            self.add(place.amount)
            place.called()

    def stuck(self, now: float, patience_s: float) -> int:
        """What the first in the queue lacks, if it has been first for that long; else 0. Called periodically."""
        first = self._first()
        if first is not self._seen or first is None:
            self._seen, self._seen_at = first, now
            return 0
        if now - self._seen_at < patience_s:
            return 0
        return max(self.used + first.amount - self.limit, 1)

    def _fits(self, amount: int) -> bool:
        return self.used == 0 or self.used + amount <= self.limit

    def _first(self) -> QueuePlace | None:
        while self._line and self._line[0].gone:
            self._line.popleft()
        return self._line[0] if self._line else None


class Budget:
    """The memory of all requests and answers of a server."""

    def __init__(self, limit: int, *, trial_bytes: int | None = None) -> None:
        assert limit > 0
        self.limit = limit
        self.trial_bytes = trial_bytes or max(min(TRIAL_BYTES, limit // (4 * SMALL_PART)), 1)
        self.small = Pool(max(limit // SMALL_PART, 1))
        self.large = Pool(max(limit - limit // SMALL_PART, 1))
        self.small_at = float("-inf")
        """When a small call of any connection was answered last (the clock's monotonic time)."""
        self.relief: list[Callable[[], None]] = []
        """Called by ``press``: release what is held while waiting for something else."""

    @property
    def used(self) -> int:
        """Bytes in flight in both pools."""
        return self.small.used + self.large.used

    @property
    def peak(self) -> int:
        """Roughly the most that was used since ``forget_peak``."""
        return self.small.peak + self.large.peak

    def forget_peak(self) -> None:
        """Reset the peak."""
        self.small.peak, self.large.peak = self.small.used, self.large.used

    @property
    def full(self) -> bool:
        """Whether more is in flight than should be."""
        return self.small.full or self.large.full

    @property
    def crowded(self) -> bool:
        """Whether more than half of a pool is used: a call that merely waits should release its memory."""
        small, large = self.small, self.large
        return 2 * small.used > small.limit or 2 * large.used > large.limit

    @property
    def scarce(self) -> bool:
        """Whether somebody waits for memory: nobody should hold any without need."""
        return self.small.waiting or self.large.waiting

    def pool_of(self, amount: int) -> Pool:
        """The pool for an amount that is held as a whole."""
        return self.small if amount <= self.trial_bytes else self.large

    def add(self, amount: int) -> None:
        """Count a frame that already exists."""
        self.small.add(min(amount, self.trial_bytes))
        self.large.add(max(amount - self.trial_bytes, 0))

    def give(self, amount: int) -> None:
        """Return a frame, or as much of it as was counted."""
        self.small.give(min(amount, self.trial_bytes))
        if amount > self.trial_bytes:
            self.large.give(amount - self.trial_bytes)

    def press(self) -> None:
        """Memory is short: ask everyone who merely holds some to release it."""
        for ask in self.relief:
            ask()
