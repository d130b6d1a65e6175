"""A shared value that only moves forward: each step builds on the newest one, in any thread.

The thread that notices a change of a store builds the new value (a catalog), one thread at a time. So the value never
goes back: a slower thread continues from the newest value instead of replacing it by an older one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Newest(Generic[T]):
    """Holds one value; reading it never waits."""

    def __init__(self, value: T) -> None:
        self._lock = threading.Lock()
        self._value = value

    @property
    def value(self) -> T:
        """The newest value."""
        return self._value

    def change(self, step: Callable[[T], T]) -> tuple[T, T]:
        """Replace the value by ``step`` of it; return the old and the new one. Keep ``step`` short."""
        with self._lock:
            before = self._value
            self._value = step(before)
            return before, self._value
