"""Who waits for a leader, beside those who wait for the high watermark (``Tablet.pending``)."""

from __future__ import annotations

from strom.errors import StromError
from strom.tablet.pending import Pending

SERVES = 1


class LeaderWaits:
    """The waits of one bucket. Belongs to the loop."""

    def __init__(self) -> None:
        self.promised = Pending()
        """For the leader's own copy to be as durable as the table promises (``acks`` 1)."""
        self.serving = Pending()
        """For the leader to serve readers without a memory; reached at ``SERVES``."""
        self.seals = Pending()
        """For a position of the journal of stages to be on every member (R14)."""
        self.barriers = Pending()
        """For a barrier to be echoed by every member (R22)."""

    def fail(self, error: StromError) -> None:
        """Answer everyone: the role has changed."""
        for pending in (self.promised, self.serving, self.seals, self.barriers):
            pending.fail(error)
