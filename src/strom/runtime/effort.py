"""What this thread has used so far: CPU seconds, and page faults that had to read from a file.

On a busy machine, wall-clock time says little about either.
"""

from __future__ import annotations

import resource
from typing import Final, NamedTuple

_THIS_THREAD: Final[int] = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class Effort(NamedTuple):
    """Since the thread began; on systems that do not count per thread, since the process did."""

    cpu_s: float
    faults: int
    """Page faults that had to read from disk."""


def effort_of_thread() -> Effort:
    """Up to now."""
    used = resource.getrusage(_THIS_THREAD)
    return Effort(used.ru_utime + used.ru_stime, used.ru_majflt)
