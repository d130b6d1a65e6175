"""How many batches are expected to be alike: more as long as they are, fewer and more rarely when they are not.

A run that breaks off has checked entries and allocated memory for all that it hoped for. So the first runs are short;
each complete run doubles the length of the next; after each that breaks off, more and more batches are taken one by one
before the next try. However much batches differ, runs stay a small part of the cost.
"""

from __future__ import annotations

FIRST = 8
PAUSE_MAX = 64


class RunPace:
    """The pace of one read."""

    def __init__(self) -> None:
        self._most = FIRST
        self._pause = 0
        self._left = 0

    def batches(self, fitting: int) -> int:
        """How many of ``fitting`` batches to try as a run now; 0 during a pause."""
        if self._left:
            self._left -= 1
            return 0
        return min(fitting, self._most)

    def had(self, hoped: int, found: int) -> None:
        """Note that a run of ``hoped`` batches found ``found`` alike."""
        if found == hoped:
            self._most = max(self._most, 2 * hoped)
            self._pause = 0
            return
        self._most = FIRST
        self._pause = min(max(2 * self._pause, 1), PAUSE_MAX)
        self._left = self._pause
