"""The signal that a quick lookup would not be quick. Apart, because catching it needs no kernels."""

from __future__ import annotations

from collections.abc import Callable


class CheckNeeded(Exception):
    """The row lies in bytes that must be checked before they are read, which takes longer than a lookup."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__("rows of a file have to be checked before they are read")
        self.check = check
        """Checks them, in any thread; then try again."""
