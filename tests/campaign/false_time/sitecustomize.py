"""Python imports this at its start, if this folder is on its path: its wall clock is then the one of a file."""

from __future__ import annotations

import mmap
import os
import struct
import time

real_ns = time.time_ns
with open(os.environ["STROM_FALSE_CLOCK"], "r+b") as opened:
    added = mmap.mmap(opened.fileno(), 8)


def time_ns() -> int:
    """The real time and what is added to it."""
    return real_ns() + int(struct.unpack_from("<q", added)[0])


def now() -> float:
    """The same in seconds."""
    return time_ns() / 1e9


time.time_ns, time.time = time_ns, now
