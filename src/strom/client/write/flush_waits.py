"""The flushes of one writer that wait until every batch up to a mark is acknowledged."""

from __future__ import annotations

import asyncio

from strom.errors import StromError


class FlushWaits:
    """Used on the loop, except that any thread may ask whether a flush waits."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, asyncio.Future[StromError | None]]] = []

    def add(self, mark: int) -> asyncio.Future[StromError | None]:
        """Wait for the batches up to ``mark``: for None, or for the failure that stops them."""
        future: asyncio.Future[StromError | None] = asyncio.get_running_loop().create_future()
        self.waiting.append((mark, future))
        return future

    def acknowledged(self, oldest: int | None) -> None:
        """The oldest batch that is not acknowledged has this number; None: there is none."""
        waiting = []
        for mark, future in self.waiting:
            if oldest is not None and oldest <= mark:
                waiting.append((mark, future))
            elif not future.done():
                future.set_result(None)
        self.waiting = waiting  # never emptied meanwhile: another thread may ask whether a flush waits

    def fail(self, failure: StromError) -> None:
        """No batch will be acknowledged any more."""
        waiting, self.waiting = self.waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_result(failure)
