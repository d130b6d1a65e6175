"""What a quick lookup says when it would not be quick. Apart, because whoever catches it needs no kernels."""

from __future__ import annotations

from collections.abc import Callable


class CheckNeeded(Exception):
    """The row lies where bytes have to be checked before they are read, which takes longer than a lookup."""

    def __init__(self, check: Callable[[], None]) -> None:
        super().__init__("rows of a file have to be checked before they are read")
        self.check = check
        """Does so, in any thread; afterwards one asks again."""
