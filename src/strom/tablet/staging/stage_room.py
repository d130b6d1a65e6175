"""The room that all stages of a server share: bytes, open files, and how many there are."""

from __future__ import annotations

from collections import Counter

from strom.errors import Busy
from strom.runtime.locks import new_lock
from strom.tablet.staging.stage_handles import HandleRoom

NUMBER_MAX = 200_000
"""Stages of all buckets of a server: a name in memory and a file each."""


class StageRoom:
    """What all stages of a server take together: bytes, files, and how many there are. Used from several lanes."""

    def __init__(self, bytes_max: int, number_max: int = NUMBER_MAX) -> None:
        self.bytes_max = bytes_max
        self.number_max = number_max
        self.bytes = 0
        self.number = 0
        self.handles = HandleRoom()
        self._of_sink: Counter[str] = Counter()
        self._lock = new_lock()

    def begin(self, sink: str) -> None:
        """Count a new stage, or raise Busy. No sink takes more than half, so that others have room."""
        with self._lock:
            if self.number >= self.number_max or self._of_sink[sink] >= max(1, self.number_max // 2):
                raise Busy(
                    f"this server holds {self.number} stages, {self._of_sink[sink]} of them of sink {sink!r}, and "
                    f"takes {self.number_max} (stage.number-max), half of them of one sink; try again when some are "
                    "published, given up, or their leases are over",
                    stages=self.number,
                    stages_max=self.number_max,
                )
            self._note(sink, 1)

    def found(self, sink: str) -> None:
        """Count an existing stage, whatever the bound."""
        with self._lock:
            self._note(sink, 1)

    def ended(self, sink: str) -> None:
        """A stage is gone."""
        with self._lock:
            self._note(sink, -1)

    def _note(self, sink: str, count: int) -> None:
        self.number += count
        self._of_sink[sink] += count
        if not self._of_sink[sink]:
            del self._of_sink[sink]

    def take(self, size: int) -> None:
        """Take room, or raise Busy."""
        with self._lock:
            if self.bytes + size > self.bytes_max:
                raise Busy(
                    f"the stages of this server take {self.bytes} of {self.bytes_max} bytes (stage.bytes-max), and "
                    f"{size} more do not fit; try again when others are published or their leases are over",
                    bytes=self.bytes,
                    bytes_max=self.bytes_max,
                )
            self.bytes += size

    def note(self, size: int) -> None:
        """Count existing bytes (or removed ones, if negative), whatever the bound."""
        with self._lock:
            self.bytes += size
