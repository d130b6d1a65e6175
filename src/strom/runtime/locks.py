"""Locks, as a thing that is passed in: the synchronous core never imports threads itself."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager


def new_lock() -> AbstractContextManager[bool]:
    """A lock for a ``with``. Held for microseconds, never while waiting for anything."""
    return threading.Lock()
