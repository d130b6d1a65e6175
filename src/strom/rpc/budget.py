"""Bytes in flight, over all connections of a server: what is taken is given back, and nobody waits for ever.

Taking is asked first (``take``) where memory does not exist yet; what exists already is only counted (``add``). Who is
refused waits in line (``wait``) and is called, in order, when there is room; the first in line is never overtaken.
An amount larger than the whole pool is taken when nothing else is: a limit must not become a deadlock.

There are two pools, so that whoever holds or wants much never stands before those who want little: a quarter is for
small things (calls that wait, the beginning of every frame), the rest for large ones (the rest of a frame, answers).

A line that does not move is a reason to act: ``stuck`` tells what its first lacks, and ``press`` asks those who
hold memory and merely wait to let go of it.

Not thread-safe: one event loop owns it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

TRIAL_BYTES = 256 * 1024
"""So much of a frame comes out of the small pool. Who has sent it has shown that the frame is real."""
SMALL_PART = 4
"""One part in so many is for small things."""


class QueuePlace:
    """A place in the line."""

    __slots__ = ("amount", "called", "gone")

    def __init__(self, amount: int, called: Callable[[], None]) -> None:
        self.amount = amount
        self.called = called
        self.gone = False

    def leave(self) -> None:
        """Wait no longer. Only while the place has not been called."""
        self.gone = True


class Pool:
    """How many bytes are in flight, of how many."""

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self.limit = limit
        self.used = 0
        self.peak = 0
        """The most that was used since somebody set this back."""
        self._line: deque[QueuePlace] = deque()
        self._seen: QueuePlace | None = None
        self._seen_at = 0.0

    @property
    def full(self) -> bool:
        """Whether more is in flight than should be."""
        return self.used > self.limit

    @property
    def waiting(self) -> bool:
        """Whether somebody stands in line."""
        return self._first() is not None

    def take(self, amount: int) -> bool:
        """Count ``amount`` in, if there is room and nobody waits for it."""
        if self._first() is not None or not self._fits(amount):
            return False
        self.add(amount)
        return True

    def add(self, amount: int) -> None:
        """Count in what exists already."""
        self.used += amount
        if self.used > self.peak:
            self.peak = self.used

    def give(self, amount: int) -> None:
        """Count out, and call those who can go on now."""
        self.used -= amount
        assert self.used >= 0, "more given back than taken"
        self.serve()

    def wait(self, amount: int, called: Callable[[], None]) -> QueuePlace:
        """Stand in line for ``amount`` (0: until it is not full); it is counted in before ``called`` is called."""
        place = QueuePlace(amount, called)
        self._line.append(place)
        return place

    def serve(self) -> None:
        """Call those who can go on now; also after somebody has left the line."""
        while (place := self._first()) is not None and self._fits(place.amount):
            self._line.popleft()
            self.add(place.amount)
            place.called()

    def stuck(self, now: float, patience_s: float) -> int:
        """What the first in line lacks, if the same one has been there for so long; else 0. Asked now and again."""
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
        """Called by ``press``: let go of what is held while waiting for something else."""

    @property
    def used(self) -> int:
        """Bytes in flight in both pools."""
        return self.small.used + self.large.used

    @property
    def peak(self) -> int:
        """About the most that was used since ``forget_peak``."""
        return self.small.peak + self.large.peak

    def forget_peak(self) -> None:
        """Watch anew."""
        self.small.peak, self.large.peak = self.small.used, self.large.used

    @property
    def full(self) -> bool:
        """Whether more is in flight than should be."""
        return self.small.full or self.large.full

    @property
    def crowded(self) -> bool:
        """Whether more than half of a pool is used: who only waits, with memory at hand, should make room."""
        small, large = self.small, self.large
        return 2 * small.used > small.limit or 2 * large.used > large.limit

    @property
    def scarce(self) -> bool:
        """Whether somebody stands in line: nobody should hold memory without need."""
        return self.small.waiting or self.large.waiting

    def pool_of(self, amount: int) -> Pool:
        """Where an amount is taken from that is held as a whole."""
        return self.small if amount <= self.trial_bytes else self.large

    def add(self, amount: int) -> None:
        """Count in a frame that exists already."""
        self.small.add(min(amount, self.trial_bytes))
        self.large.add(max(amount - self.trial_bytes, 0))

    def give(self, amount: int) -> None:
        """Count out a frame, or as much of it as was counted in."""
        self.small.give(min(amount, self.trial_bytes))
        if amount > self.trial_bytes:
            self.large.give(amount - self.trial_bytes)

    def press(self) -> None:
        """Memory is short: ask everyone who merely holds some to let go of it."""
        for ask in self.relief:
            ask()
