"""What a copy has, as its server reports it."""

from __future__ import annotations

from typing import NamedTuple

from strom.model.properties import Durability


class Report(NamedTuple):
    """A copy's part of the leader's log and stages. ``end`` and ``synced`` are boundaries of groups (R13)."""

    end: int
    synced: int
    stages: int
    """How much of the leader's journal of stages it has, as durable as the table promises."""
    barrier: int
    """The highest barrier it was told in this epoch (R22)."""

    def promised(self, durability: Durability) -> int:
        """Up to where the copy keeps the table's promise (R6)."""
        return self.synced if durability == "group" else self.end

    def merged(self, other: Report) -> Report:
        """The best of both: messages arrive in any order, and in one epoch a copy that matches only grows."""
        return Report(*map(max, self, other))


NOTHING = Report(0, 0, 0, 0)
"""What is counted of a member that has not reported in this epoch: it holds everything back."""
