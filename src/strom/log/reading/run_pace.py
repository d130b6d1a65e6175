"""How many batches are expected to be alike: more as long as they are, fewer and more rarely when they are not.

A run that breaks off has looked at entries, and had memory made, for all that it hoped for. So the first runs are
short, each that comes out whole allows one of twice the length, and after each that does not more and more batches are
taken one by one before the next is tried: however batches differ, runs cost a small part of the whole.
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
        """How many of ``fitting`` batches a run may hope for now; none while there is a pause."""
        if self._left:
            self._left -= 1
            return 0
        return min(fitting, self._most)

    def had(self, hoped: int, found: int) -> None:
        """A run of ``hoped`` batches came to ``found``."""
        if found == hoped:
            self._most = max(self._most, 2 * hoped)
            self._pause = 0
            return
        self._most = FIRST
        self._pause = min(max(2 * self._pause, 1), PAUSE_MAX)
        self._left = self._pause
