"""Waits for a bucket's high watermark: acknowledgements and long-polling reads.

A wait is a callback and the offset the high watermark must reach. It is called exactly once, with None when the
offset is reached or with the error that took the tablet offline; a cancelled wait is never called. Callbacks must be
short and may add new waits: the next ``advance`` considers those.
"""

from __future__ import annotations

from collections.abc import Callable

from strom.errors import StromError

Callback = Callable[[StromError | None], None]

_NOBODY = 1 << 63


class Pending:
    """The waits of one bucket.

    A plain dictionary that is walked when the lowest awaited offset is reached: the waits of one bucket are
    few, and nearly all of them are due together.
    """

    def __init__(self) -> None:
        self._waits: dict[int, tuple[int, Callback]] = {}
        self._lowest = _NOBODY
        self._tickets = 0

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waits)

    def add(self, offset: int, callback: Callback) -> int:
        """Call back when the high watermark is ``offset`` or more; returns the ticket for ``cancel``."""
        self._tickets += 1
        self._waits[self._tickets] = (offset, callback)
        self._lowest = min(self._lowest, offset)
        return self._tickets

    def cancel(self, ticket: int) -> None:
        """Forget a wait; fine when it was called already."""
        self._waits.pop(ticket, None)
        if not self._waits:
            self._lowest = _NOBODY

    def advance(self, high_watermark: int) -> None:
        """Call everyone whose offset is reached, in the order they came."""
        if high_watermark < self._lowest:
            return
        due = [ticket for ticket, (offset, _) in self._waits.items() if offset <= high_watermark]
        callbacks = [self._waits.pop(ticket)[1] for ticket in due]
        self._lowest = min((offset for offset, _ in self._waits.values()), default=_NOBODY)
        for callback in callbacks:
            callback(None)

    def fail(self, error: StromError) -> None:
        """Call everyone with the error."""
        waits, self._waits, self._lowest = self._waits, {}, _NOBODY
        for _, callback in waits.values():
            callback(error)
