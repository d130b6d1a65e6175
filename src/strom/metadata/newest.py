"""The newest of several values, offered by any thread in any order.

What is made from a snapshot (a catalog) is made by whoever noticed the change, in its own thread. A slower
thread must not put an older one back: a table that was just created would seem dropped for a moment.
"""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class Newest(Generic[T]):
    """Holds one value and its version; only a higher version replaces it."""

    def __init__(self, version: int, value: T) -> None:
        self._lock = threading.Lock()
        self._version = version
        self._value = value

    @property
    def value(self) -> T:
        """The newest value so far."""
        return self._value

    def offer(self, version: int, value: T) -> T:
        """Take the value if it is newer; return the newest."""
        with self._lock:
            if version > self._version:
                self._version, self._value = version, value
            return self._value
