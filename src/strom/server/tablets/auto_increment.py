"""Numbers for an auto-increment column: a bucket takes a block of them from the metadata and hands them out.

A number is handed out at most once in a table's life. The rest of a block is lost when the bucket is closed, so numbers
rise roughly, and with gaps.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt


class BucketNumbers:
    """The numbers of one bucket. Only its lane uses it."""

    def __init__(self, allocate: Callable[[int], range], *, block: int) -> None:
        self._allocate = allocate
        self._block = block
        self._left = range(0)

    def take(self, count: int) -> npt.NDArray[np.int64]:
        """The next ``count`` numbers. May wait for the disk: never on the loop."""
        taken = np.empty(count, np.int64)
        filled = 0
        while filled < count:
            if not self._left:
                self._left = self._allocate(max(self._block, count - filled))
            part = self._left[: count - filled]
            taken[filled : filled + len(part)] = np.arange(part.start, part.stop, dtype=np.int64)
            self._left = self._left[len(part) :]
            filled += len(part)
        return taken
