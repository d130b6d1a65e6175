"""Returns memory to the system after a rush.

Allocators keep freed memory for the next request; while calls come and go, that halves the price of a read. When the
rush is over, other programs on the machine could use it. During a rush it goes back, too, where what is kept would come
on top of a budget that is used: the process shall not take more than the budget and itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from strom.rpc.budget import Budget
from strom.runtime.tasks import Offload

LOOK_EVERY_S = 2.0
GLANCES = 8
"""How often, between two looks, the process is compared with its budget."""
PEAK_BYTES_MIN = 64 * 1024 * 1024
"""Less than this is not worth the page faults of the next calls."""
QUIET_PART = 4
"""Quiet means: no more than this part of the peak is in use, at two looks in a row."""


class MemoryReturn:
    """Watches a budget and the process, and has memory returned when a rush is over."""

    def __init__(
        self,
        budget: Budget,
        offloads: Sequence[Offload],
        give_back: Callable[[], None],
        resident: Callable[[], int] = lambda: 0,
    ) -> None:
        self._budget = budget
        self._offloads = offloads
        self._give_back = give_back
        self._resident = resident
        self._low = resident()
        self._quiet = False

    async def run(self) -> None:
        """Run forever."""
        while True:
            for _ in range(GLANCES):
                await asyncio.sleep(LOOK_EVERY_S / GLANCES)
                if self.is_too_much():
                    await self._return()
                    self._low = max(self._low, self._resident() - self._budget.used)  # what is left is in use
            if self.is_over():
                await self._return()
                self._low = self._resident()  # what is left is in use

    async def _return(self) -> None:
        self._give_back()
        for offload in self._offloads:
            await offload.everywhere(self._give_back)  # each thread has a heap of its own

    def is_too_much(self) -> bool:
        """Whether the process has more than it had at rest and its whole budget, so that some of it is unused."""
        return self._resident() > self._low + self._budget.limit + PEAK_BYTES_MIN

    def is_over(self) -> bool:
        """Whether a rush has ended since the look before the last."""
        budget = self._budget
        rush = budget.peak >= PEAK_BYTES_MIN or self._resident() > self._low + PEAK_BYTES_MIN
        if not rush or budget.used * QUIET_PART > max(budget.peak, PEAK_BYTES_MIN):
            self._quiet = False
            return False
        if not self._quiet:
            self._quiet = True
            return False
        self._quiet = False
        budget.forget_peak()
        return True
