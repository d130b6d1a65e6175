"""What this thread has done so far: seconds of a processor, and waits for memory that had to be read from a file.

Beside other processes the clock on the wall tells little of either.
"""

from __future__ import annotations

import resource
from typing import Final, NamedTuple

_THIS_THREAD: Final[int] = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


class Effort(NamedTuple):
    """Since the thread began; where the system does not tell threads apart, since the process did."""

    cpu_s: float
    faults: int
    """Pages that were not in memory."""


def effort_of_thread() -> Effort:
    """Up to now."""
    used = resource.getrusage(_THIS_THREAD)
    return Effort(used.ru_utime + used.ru_stime, used.ru_majflt)
