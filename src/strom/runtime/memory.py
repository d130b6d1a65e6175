"""Tuning of the memory allocator.

Batches are allocated and freed by the megabyte. By default glibc returns a freed block of that size to the system and
faults in every page of the next one, which can cost more than the read itself. But its threshold is dynamic: after one
large block was freed, it keeps that much for later (up to twice its size per thread, see ``M_TRIM_THRESHOLD`` in
mallopt(3)).

For other allocators this is an allocation like any other.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import suppress
from pathlib import Path

KEPT_BYTES = 16 * 1024 * 1024


def keep_freed_blocks() -> None:
    """Raise glibc's threshold by freeing one large block. It is never touched, so it costs no memory."""
    bytes(KEPT_BYTES)


def give_back() -> None:
    """Return what is free to the system: glibc's blocks, and those of Arrow's that this thread made.

    Takes milliseconds.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
    release_arrow()


def resident_bytes() -> int:
    """What the process has of the machine's memory; 0 where nobody can tell."""
    try:
        with open("/proc/self/statm", "rb") as facts:
            return int(facts.read().split()[1]) * mmap.PAGESIZE
    except OSError:
        return 0


def machine_bytes() -> int:
    """The memory that this process may hope for: the machine's, or its container's if that is less."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # no such limit
        found = min(found, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return found


def release_arrow() -> None:
    """Return what this thread has freed of Arrow's memory: after work that took much of it at once."""
    import pyarrow as pa  # not before somebody needs it: the light client has none

    pa.default_memory_pool().release_unused()
