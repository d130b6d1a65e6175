"""A wall clock of one process that jumps: Python's, patched when the process starts (``false_time/sitecustomize.py``).

Debian's libfaketime would do it below Python, but also touches sleeping and waiting: under it a server takes half a
minute to start, and sleeps fail.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

SITE = Path(__file__).parent / "false_time"
SECOND_NS = 1_000_000_000


class FalseClock:
    """What a process adds to the real time."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(struct.pack("<q", 0))
        self._file = file
        with file.open("r+b") as opened:
            self._added = mmap.mmap(opened.fileno(), 8)

    def jump(self, seconds: int) -> None:
        """Be so far from the real time, from now on."""
        self._added[:] = struct.pack("<q", seconds * SECOND_NS)

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process that is started with it see this clock."""
        path = os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH", "")]))
        return {"PYTHONPATH": path, "STROM_FALSE_CLOCK": str(self._file)}
