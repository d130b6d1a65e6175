"""Making machine code, as a thing that is passed in: it takes seconds to minutes, and tests cannot wait for it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

Progress = Callable[[int, int], None]
"""(done, of) so many."""


class Compiling(Protocol):
    """Makes code by groups. Used by one thread that may block, except for ``stop``."""

    def missing(self, groups: Collection[str]) -> bool:
        """Whether any of it has to be made first; else it only has to be loaded, which is quick."""

    def compile(self, groups: Collection[str], progress: Progress) -> None:
        """Make what is missing."""

    def load(self, groups: Collection[str]) -> None:
        """Have it ready in this process."""

    def stop(self) -> None:
        """From any thread: ``compile`` returns soon."""
