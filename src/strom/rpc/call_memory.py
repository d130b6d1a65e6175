"""The memory that one call holds beyond its frame: what it reads, decompresses, and answers.

It is taken before the memory is allocated, and held until the answer was sent or is counted as unsent. A call that
already holds memory does not wait for more but continues with what it has, so no call waits for a waiting call.
"""

from __future__ import annotations

import asyncio

from strom.errors import Busy
from strom.rpc.budget import Budget, Pool, QueuePlace

WAIT_S = 5.0
"""A call that gets no memory for this long is refused with Busy."""


class BudgetShare:
    """One call's share of the budget. Belongs to its loop."""

    __slots__ = ("_budget", "_pool", "amount")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._pool: Pool | None = None
        self.amount = 0
        """Bytes held."""

    @property
    def scarce(self) -> bool:
        """Whether others wait for memory."""
        return self._budget.scarce

    @property
    def crowded(self) -> bool:
        """Whether all calls together hold so much that a merely waiting one should release its memory."""
        return self._budget.crowded

    def take(self, amount: int) -> bool:
        """Take ``amount`` more, if there is room and nobody waits for it."""
        pool = self._of(amount)
        if not pool.take(amount):
            return False
        self._holds(pool, amount)
        return True

    def add(self, amount: int) -> None:
        """Count memory that already exists."""
        pool = self._of(amount)
        pool.add(amount)
        self._holds(pool, amount)

    async def wait(self, amount: int, timeout_s: float = WAIT_S) -> bool:
        """Wait for ``amount``; False if there was no room in time. Only for a call that holds nothing."""
        assert self.amount == 0, "a call that holds memory must not wait for more"
        pool = self._of(amount)
        if pool.take(amount):
            self._holds(pool, amount)
            return True
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def called() -> None:
            if granted.done():
                pool.give(amount)
            else:
                granted.set_result(None)

        place = pool.wait(amount, called)
        try:
            async with asyncio.timeout(timeout_s):
                await granted
        except TimeoutError:
            return self._given_up(place, granted, pool, amount)
        except BaseException:
            if self._given_up(place, granted, pool, amount):
                self.close()
            raise
        self._holds(pool, amount)
        return True

    def part(self) -> BudgetShare:
        """A separate share for a part of the call that runs concurrently; ``join`` it in the end."""
        return BudgetShare(self._budget)

    def join(self, part: BudgetShare) -> None:
        """Take over what a part holds."""
        amount = part.amount
        if amount:
            self.add(amount)
            part.close()

    async def need(self, amount: int) -> None:
        """Like ``wait``, but raises Busy if there was no room in time."""
        if not await self.wait(amount):
            raise Busy(
                f"{amount} bytes of memory were not free in time (server.inflight-bytes-max): try again",
                bytes=amount,
            )

    def keep(self, amount: int) -> None:
        """Return all but ``amount``."""
        if self._pool is not None and amount < self.amount:
            spare, self.amount = self.amount - amount, amount
            self._pool.give(spare)

    def close(self) -> None:
        """Return everything."""
        if self.amount:
            self.keep(0)

    def _of(self, amount: int) -> Pool:
        if self._pool is not None and self.amount:
            return self._pool
        return self._budget.pool_of(amount)

    def _holds(self, pool: Pool, amount: int) -> None:
        self._pool = pool
        self.amount += amount

    def _given_up(self, place: QueuePlace, granted: asyncio.Future[None], pool: Pool, amount: int) -> bool:
        """Leave the queue; True if our turn had just come."""
        if granted.done() and not granted.cancelled():
            self._holds(pool, amount)
            return True
        granted.cancel()
        place.leave()
        pool.serve()
        return False
