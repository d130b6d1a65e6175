"""The newest of several values, each made from the one before it, by any thread that has something new.

What is made from a store (a catalog) is made by whoever noticed the change, in its own thread, one thread at a time. So
the value never goes back: a slower thread does not put an older one in its place, it goes on from the newest.
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
        """The newest value so far."""
        return self._value

    def change(self, step: Callable[[T], T]) -> tuple[T, T]:
        """Put what ``step`` makes of the value in its place; the value before, and the one after. Keep it short."""
        with self._lock:
            before = self._value
            self._value = step(before)
            return before, self._value
