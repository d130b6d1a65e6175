"""What one connection has in flight, and whether it may read on. Pure: the connection does what it is told.

Reading stops while there is a reason (``Hold``) and goes on when the last one has gone.

Counting. A large frame is counted from the moment its memory is taken, a small one when its call has to wait; both
until the call is answered, even if the connection is lost before. Unsent answers are counted while the other side
is slow to read. What a connection counts is in the server's budget too; when its last call has ended and it
is lost, both hold nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable

from strom.rpc.budget import Budget, Place
from strom.rpc.limits import Limits


class Hold:
    """Why nothing is read. Plain bits, since they are looked at for every call."""

    ANSWERS = 1  # the other side does not read what it asked for
    CALLS = 2  # too many calls wait
    BYTES = 4  # too many bytes of this connection are in flight
    BUDGET = 8  # too many bytes of all connections are
    TURN = 16  # others first
    STOPPING = 32  # the listener closes


class Flow:
    """The counts of one connection."""

    def __init__(
        self, limits: Limits, budget: Budget, *, pause: Callable[[], None], resume: Callable[[], None]
    ) -> None:
        self._limits = limits
        self._budget = budget
        self._pause = pause
        self._resume = resume
        self.holds = 0
        """The reasons, as bits of ``Hold``."""
        self.calls = 0
        """Calls that wait for their answer."""
        self.bytes = 0
        """Counted for requests."""
        self.unsent = 0
        """Counted for answers."""
        self._arriving = 0  # of ``bytes``: the large frame that is arriving, or may begin to
        self._granted = False  # the budget's line has counted ``_arriving`` in, and nobody has asked yet
        self._place: Place | None = None

    # --- reading --------------------------------------------------------------------------------------------

    def hold(self, reason: int) -> None:
        """Stop reading for this reason."""
        if self.holds == 0:
            self._pause()
        self.holds |= reason

    def release(self, reason: int) -> None:
        """This reason has gone."""
        if self.holds & reason:
            self.holds &= ~reason
            if self.holds == 0:
                self._resume()

    def may_serve(self) -> bool:
        """Whether the next frame may be served; if not, ``resume`` is called when it may.

        A frame that has its memory goes on arriving whatever the budget says: only its end gives the memory back.
        """
        if self._budget.used > self._budget.limit and self._place is None and not self._arriving:
            self._stand_in_line(0)
        return self.holds == 0

    # --- a large frame --------------------------------------------------------------------------------------

    def admit(self, size: int) -> bool:
        """Whether a large frame may take its memory; if not, ask again when ``resume`` is called."""
        assert size > 0
        if self._granted:
            assert self._arriving == size
            self._granted = False
            return True
        assert self._arriving == 0
        if self.bytes and self.bytes + size > self._limits.connection_inflight_bytes_max:
            self.hold(Hold.BYTES)
            return False
        if not self._budget.take(size):
            self._stand_in_line(size)
            return False
        self.bytes += size
        self._arriving = size
        return True

    def arrived(self) -> int:
        """A frame is complete: what is counted for it, from now on in the hands of the caller."""
        size = self._arriving
        if size:
            assert not self._granted
            self._arriving = 0
        return size

    # --- calls ----------------------------------------------------------------------------------------------

    def began(self, size: int, *, counted: bool) -> None:
        """A call waits for its answer; its frame of ``size`` bytes may be counted already."""
        self.calls += 1
        if not counted:
            self.bytes += size
            self._budget.add(size)
        if self.calls >= self._limits.calls_max:
            self.hold(Hold.CALLS)
        if self.bytes >= self._limits.connection_inflight_bytes_max:
            self.hold(Hold.BYTES)

    def ended(self, size: int) -> None:
        """A call that waited is answered."""
        self.calls -= 1
        assert self.calls >= 0
        self.uncount(size)
        self.release(Hold.CALLS)

    def uncount(self, size: int) -> None:
        """The frame of an answered call is needed no more."""
        self.bytes -= size
        assert self.bytes >= 0
        self._budget.give(size)
        if self.bytes < self._limits.connection_inflight_bytes_max:
            self.release(Hold.BYTES)

    def count_unsent(self, size: int) -> None:
        """``size`` bytes of answers wait for the other side to read."""
        change, self.unsent = size - self.unsent, size
        if change > 0:
            self._budget.add(change)
        else:
            self._budget.give(-change)

    # --- the end --------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """The connection is lost: nothing arrives or is sent any more. Its calls may still end."""
        if self._place is not None:
            self._place.leave()
            self._place = None
        self.count_unsent(0)
        self._granted = False
        arriving = self.arrived()
        if arriving:
            self.uncount(arriving)

    def _stand_in_line(self, size: int) -> None:
        def called() -> None:
            self._place = None
            self.bytes += size
            self._arriving = size
            self._granted = size > 0
            self.release(Hold.BUDGET)

        self.hold(Hold.BUDGET)
        self._place = self._budget.wait(size, called)
