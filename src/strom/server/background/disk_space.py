"""Room on the disk: writes are refused before it is full, so that reads, metadata and recovery go on.

The writes themselves check the disk, at most every ``SAMPLE_S`` seconds. Writing resumes by itself: once there is room
again (a quarter more than the bound, so that it does not flap), the next write is accepted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from strom.errors import StorageFull
from strom.runtime.clock import Clock
from strom.runtime.files import Files
from strom.runtime.units import rough_size

SAMPLE_S = 0.2

logger = logging.getLogger(__name__)


class DiskSpace:
    """Whether the disks of a server's folders have room for writes: the fullest of them counts."""

    def __init__(self, files: Files, folders: Sequence[str], *, free_bytes_min: int, clock: Clock) -> None:
        self._files = files
        self._folders = folders
        self._folder = folders[0]
        """The one with least room."""
        self._clock = clock
        self._sampled_at = float("-inf")
        self.free_bytes_min = free_bytes_min
        self.free_bytes = 0
        self.full = False

    def refuse_when_full(self) -> None:
        """Raise StorageFull when a write may not begin."""
        now = self._clock.monotonic()
        if now - self._sampled_at >= SAMPLE_S:
            self._sampled_at = now
            self.sample()
        if self.full:
            raise StorageFull(
                f"{self._folder} has {self.free_bytes} bytes left, writes need {self.free_bytes_min}; reads go on and "
                "writing resumes when there is room (data-disk.free-bytes-min)",
                free_bytes=self.free_bytes,
                free_bytes_min=self.free_bytes_min,
            )

    def sample(self) -> None:
        """Check the disk."""
        self.free_bytes, self._folder = min((self._files.free_bytes(one), one) for one in self._folders)
        before, needed = self.full, self.free_bytes_min * 5 // 4 if self.full else self.free_bytes_min
        self.full = self.free_bytes < needed
        if self.full and not before:
            logger.error(
                "the disk of %s is full: %s left, writes need %s. Writes are refused, reads go on; make room",
                self._folder,
                rough_size(self.free_bytes),
                rough_size(self.free_bytes_min),
            )
        elif before and not self.full:
            logger.info("the disk of %s has room again: writes are accepted", self._folder)
