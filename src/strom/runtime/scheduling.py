"""How threads share the cores: bulk threads lower their priority, and the loop can measure how long it waited.

Linux only. Elsewhere all threads are equal, and the measured wait is 0.
"""

from __future__ import annotations

import os
import sys
import threading

_LINUX = sys.platform == "linux"
NICE_MAX = 19
NICE_STEP = 5
"""How much lower than the rest of the process. Not the lowest: a thread that hardly runs while it holds a lock blocks
everybody who wants the lock."""


def step_back() -> None:
    """Lower the priority of the calling thread, so that it does not preempt the others of this process."""
    if not _LINUX:
        return
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        me = threading.get_native_id()  # on Linux every thread has its own nice value
        os.setpriority(os.PRIO_PROCESS, me, min(NICE_MAX, os.getpriority(os.PRIO_PROCESS, me) + NICE_STEP))
    except OSError:
        return  # forbidden by a sandbox: the priority stays


class CoreWait:
    """How long the thread that created it was runnable without a core."""

    def __init__(self) -> None:
        self._told = 0.0
        self._file: int | None = None
        if _LINUX:
            try:
                self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
            except OSError:
                return  # no /proc, or no such statistics
            self.since_last()

    def since_last(self) -> float:
        """Seconds since the last call; 0 if unknown."""
        if self._file is None:
            return 0.0
        fields = os.pread(self._file, 128, 0).split()
        total = int(fields[1]) / 1e9 if len(fields) > 1 else 0.0
        found, self._told = total - self._told, total
        return found

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
