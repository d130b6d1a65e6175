"""Bytes in flight, over all connections of a server: what is taken is given back, and nobody waits for ever.

Taking is asked first (``take``) where memory does not exist yet; what exists already is only counted (``add``). Who is
refused waits in line (``wait``) and is called, in order, when there is room; the first in line is never overtaken.
An amount larger than the whole budget is taken when nothing else is: a limit must not become a deadlock.

Not thread-safe: one event loop owns it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Place:
    """A place in the line."""

    __slots__ = ("amount", "called", "gone")

    def __init__(self, amount: int, called: Callable[[], None]) -> None:
        self.amount = amount
        self.called = called
        self.gone = False

    def leave(self) -> None:
        """Wait no longer. Only while the place has not been called."""
        self.gone = True


class Budget:
    """How many bytes are in flight, of how many."""

    def __init__(self, limit: int) -> None:
        assert limit > 0
        self.limit = limit
        self.used = 0
        self.small_at = float("-inf")
        """When a small call of any connection was answered last (the clock's monotonic time)."""
        self._line: deque[Place] = deque()

    @property
    def full(self) -> bool:
        """Whether more is in flight than should be."""
        return self.used > self.limit

    def take(self, amount: int) -> bool:
        """Count ``amount`` in, if there is room and nobody waits for it."""
        if self._first() is not None or not self._fits(amount):
            return False
        self.used += amount
        return True

    def add(self, amount: int) -> None:
        """Count in what exists already."""
        self.used += amount

    def give(self, amount: int) -> None:
        """Count out, and call those who can go on now."""
        self.used -= amount
        assert self.used >= 0, "more given back than taken"
        while (place := self._first()) is not None and self._fits(place.amount):
            self._line.popleft()
            self.used += place.amount
            place.called()

    def wait(self, amount: int, called: Callable[[], None]) -> Place:
        """Stand in line for ``amount`` (0: until it is not full); it is counted in before ``called`` is called."""
        place = Place(amount, called)
        self._line.append(place)
        return place

    def _fits(self, amount: int) -> bool:
        return self.used == 0 or self.used + amount <= self.limit

    def _first(self) -> Place | None:
        while self._line and self._line[0].gone:
            self._line.popleft()
        return self._line[0] if self._line else None
