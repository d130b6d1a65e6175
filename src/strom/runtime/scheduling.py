"""How threads share the cores: those that do bulk work step back, and the loop can tell how long it had to wait.

Linux only. Elsewhere nothing is asked for and nothing is told: threads are equal there, and nobody ever waited.
"""

from __future__ import annotations

import os
import sys
import threading

_LINUX = sys.platform == "linux"
NICE_MAX = 19
NICE_STEP = 5
"""How much lower than the rest of the process. Not as low as it goes: a thread that hardly runs while it holds a lock
keeps everyone waiting who wants the lock."""


def step_back() -> None:
    """Let the other threads of this process go before the one that calls: it takes no core from them by waking up."""
    if not _LINUX:
        return
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        me = threading.get_native_id()  # on Linux a thread has a nice value of its own
        os.setpriority(os.PRIO_PROCESS, me, min(NICE_MAX, os.getpriority(os.PRIO_PROCESS, me) + NICE_STEP))
    except OSError:
        return  # a sandbox that forbids it: the thread works as before


class CoreWait:
    """How long the thread that made it was ready to run and had no core."""

    def __init__(self) -> None:
        self._told = 0.0
        self._file: int | None = None
        if _LINUX:
            try:
                self._file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
            except OSError:
                return  # no /proc, or a system that keeps no count
            self.since_last()

    def since_last(self) -> float:
        """Seconds since the last call; 0 where the system does not tell."""
        if self._file is None:
            return 0.0
        fields = os.pread(self._file, 128, 0).split()
        total = int(fields[1]) / 1e9 if len(fields) > 1 else 0.0
        found, self._told = total - self._told, total
        return found

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
