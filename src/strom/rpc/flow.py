"""What one connection has in flight, and whether it may read on. Pure: the connection acts on it.

Reading stops while there is a reason (``PauseReason``) and resumes when the last one is gone.

Counting: a large frame is counted as it arrives, first a little, which grows with what has arrived; once the frame is
known to be real (``Budget.trial_bytes``), all the rest. A small frame is counted when its call has to wait. Both until
the call is answered, even if the connection is lost before. Unsent answers are counted while the other side reads
slowly. Everything is also counted in the server's budget; after a connection is lost and its last call has ended,
nothing of it remains in either.
"""

from __future__ import annotations

from collections.abc import Callable

from strom.rpc.budget import Budget, Pool, QueuePlace
from strom.rpc.limits import ListenerLimits

FIRST_BYTES = 64 * 1024
"""The first allowance of a frame while memory is short; doubled each time it has arrived."""
CALL_BYTES = 2048
"""Memory of a waiting call besides its frame."""


class PauseReason:
    """Why reading is paused. Plain bits, since they are checked for every call."""

    ANSWERS = 1  # the other side does not read its answers
    CALLS = 2  # too many calls wait
    BYTES = 4  # too many bytes of this connection are in flight
    BUDGET = 8  # too many bytes of all connections are in flight
    TURN = 16  # others first
    STOPPING = 32  # the listener closes
    SLOW = 64  # its last call took long on the loop, and others make small calls


class Flow:
    """The counts of one connection."""

    def __init__(
        self, limits: ListenerLimits, budget: Budget, *, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._limits = limits
        self._budget = budget
        self._pause = pause
        self._resume = resume
        self.holds = 0
        """The reasons, as bits of ``PauseReason``."""
        self.calls = 0
        """Calls that wait for their answer."""
        self.bytes = 0
        """Counted for requests."""
        self.unsent = 0
        """Counted for answers."""
        self._size = 0  # of the large frame that is arriving, or may begin to
        self._arriving = 0  # of ``bytes``: what is counted for it so far
        self._granted = False  # the budget's line has counted more in, and nobody has asked yet
        self._place: QueuePlace | None = None
        self._pool: Pool = budget.small  # whose line ``_place`` is in

    # --- reading --------------------------------------------------------------------------------------------

    def hold(self, reason: int) -> None:
        """Stop reading for this reason."""
        if self.holds == 0:
            self._pause()
        self.holds |= reason

    def release(self, reason: int) -> None:
        """This reason is gone."""
        if self.holds & reason:
            self.holds &= ~reason
            if self.holds == 0:
                self._resume()

    def may_serve(self) -> bool:
        """Whether the next frame may be served; if not, ``resume`` is called when it may.

        A frame that has begun keeps arriving whatever the budget: only its end returns the memory.
        """
        if self._budget.small.used > self._budget.small.limit and self._place is None and not self._size:
            self._stand_in_line(self._budget.small, 0)
        return self.holds == 0

    # --- a large frame --------------------------------------------------------------------------------------

    def grant(self, size: int, arrived: int) -> int:
        """How many bytes of a large frame may arrive in total, given how many have arrived.

        More than that, or 0: then ask again when ``resume`` is called.
        """
        assert size > arrived
        if self._granted:
            self._granted = False
            return self._arriving
        if self._size == 0:
            if self.bytes and self.bytes + size > self._limits.connection_inflight_bytes_max:
                self.hold(PauseReason.BYTES)
                return 0
            self._size = size
        target = self._target(size, max(arrived, self._arriving))
        more = target - self._arriving
        pool = self._budget.small if target <= self._budget.trial_bytes else self._budget.large
        if not pool.take(more):
            self._stand_in_line(pool, more)
            return 0
        self._arriving = target
        self.bytes += more
        return target

    def _target(self, size: int, arrived: int) -> int:
        """How much may arrive next. One pool's grant never extends into the other's part."""
        trial = self._budget.trial_bytes
        if self._arriving >= trial:
            return size
        small = self._budget.small
        first = trial if 2 * small.used <= small.limit else min(FIRST_BYTES, trial)
        return min(size, trial, max(first, 2 * arrived))

    def arrived(self) -> int:
        """A frame is complete: return what is counted for it; the caller is responsible from now on."""
        size = self._arriving
        if size:
            assert not self._granted
            assert size == self._size
            self._size = self._arriving = 0
        return size

    def held(self, pool: Pool) -> int:
        """Bytes of a pool that would be free if the connection were lost."""
        first = min(self._arriving, self._budget.trial_bytes)
        return first if pool is self._budget.small else self._arriving - first + self.unsent

    # --- calls ----------------------------------------------------------------------------------------------

    def began(self, size: int, *, counted: bool) -> None:
        """A call waits for its answer; its frame of ``size`` bytes may be counted already."""
        self.calls += 1
        self._budget.small.add(CALL_BYTES)
        if not counted:
            self.bytes += size
            self._budget.add(size)
        if self.calls >= self._limits.calls_max:
            self.hold(PauseReason.CALLS)
        if self.bytes >= self._limits.connection_inflight_bytes_max:
            self.hold(PauseReason.BYTES)

    def ended(self, size: int) -> None:
        """A call that waited is answered."""
        self.calls -= 1
        assert self.calls >= 0
        self._budget.small.give(CALL_BYTES)
        self.uncount(size)
        self.release(PauseReason.CALLS)

    def uncount(self, size: int) -> None:
        """The frame of an answered call is no longer needed."""
        self.bytes -= size
        assert self.bytes >= 0
        self._budget.give(size)
        if self.bytes < self._limits.connection_inflight_bytes_max:
            self.release(PauseReason.BYTES)

    def count_unsent(self, size: int) -> None:
        """``size`` bytes of answers wait for the other side to read."""
        change, self.unsent = size - self.unsent, size
        if change > 0:
            self._budget.large.add(change)
        elif change < 0:
            self._budget.large.give(-change)

    # --- the end --------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """The connection is lost: nothing arrives or is sent any more. Its calls may still end."""
        if self._place is not None:
            self._place.leave()
            self._place = None
            self._pool.serve()  # those behind it in the queue
        self._pause = self._resume = _nothing  # a reference would keep the connection alive
        self.count_unsent(0)
        self._granted = False
        size, self._size, self._arriving = self._arriving, 0, 0
        if size:
            self.uncount(size)

    def _stand_in_line(self, pool: Pool, more: int) -> None:
        def called() -> None:
            self._place = None
            self.bytes += more
            self._arriving += more
            self._granted = more > 0
            self.release(PauseReason.BUDGET)

        self.hold(PauseReason.BUDGET)
        self._pool = pool
        self._place = pool.wait(more, called)


def _nothing() -> None:
    """For a connection that is gone."""
