"""Locks, passed in as an argument: the synchronous core never imports ``threading``."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager


def new_lock() -> AbstractContextManager[bool]:
    """A lock for a ``with``. Held for microseconds, never while waiting for anything."""
    return threading.Lock()
