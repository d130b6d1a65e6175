"""Progress of long work: one line on a terminal, erased at the end; elsewhere a log entry now and then."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

log = logging.getLogger("strom.spark")

LINE_S, LOG_S = 0.2, 5.0
"""Seconds between two updates of the line, and between two log entries."""


class ProgressLine:
    """Call ``say`` as often as you like; it limits itself. Use as a context manager."""

    def __init__(self, *, enabled: bool = True, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._enabled = enabled
        self._terminal = enabled and self._stream.isatty()
        self._every = LINE_S if self._terminal else LOG_S
        self._next = time.monotonic() + (0.0 if self._terminal else LOG_S)
        self._width = 0

    def say(self, text: str) -> None:
        """Show the progress."""
        now = time.monotonic()
        if not self._enabled or now < self._next:
            return
        self._next = now + self._every
        if self._terminal:
            self._write(text)
        else:
            log.info("%s", text)

    def _write(self, text: str) -> None:
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._width:
            self._write("")
            self._stream.write("\r")
            self._stream.flush()
