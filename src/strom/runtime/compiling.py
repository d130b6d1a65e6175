"""Compilation of machine code, passed in as an argument: it takes seconds to minutes, too long for tests."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

Progress = Callable[[int, int], None]
"""Called with the number done and the total."""


class Compiling(Protocol):
    """Compiles groups of code. Used by one thread that may block, except for ``stop``."""

    def missing(self, groups: Collection[str]) -> bool:
        """Whether anything has to be compiled; otherwise it only has to be loaded, which is quick."""

    def compile(self, groups: Collection[str], progress: Progress) -> None:
        """Compile what is missing."""

    def load(self, groups: Collection[str]) -> None:
        """Load it into this process."""

    def stop(self) -> None:
        """Make ``compile`` return soon. May be called from any thread."""
