"""What a bucket's place on a server needs to know of replication.

A bucket that has an entry under ``replicas/`` has copies on several servers, and its place here has a *role*
(``server/replicas``): it leads, or follows, or waits to be told. A bucket without an entry has no role, and nothing
here costs it anything.
"""

from __future__ import annotations

from typing import Protocol

from strom.tablet.pending import Pending
from strom.tablet.tablet import Tablet


class CopyRole(Protocol):
    """The part of one copy in its bucket, as calls of clients see it. Belongs to the loop."""

    turn: int
    """Changes with every change of role: what was begun under another turn is answered with NotLeader."""

    @property
    def placement(self) -> int:
        """The placement that names the copy's folder."""

    @property
    def leads(self) -> bool:
        """Whether this server leads the bucket, or is about to."""

    @property
    def stable(self) -> int:
        """Up to where every member has the log synced."""

    @property
    def promised(self) -> Pending:
        """Waits for the leader's own copy to be as durable as the table promises (``acks`` 1)."""

    def check_leads(self) -> None:
        """Raise NotLeader unless this server leads the bucket, or is about to."""

    def check_turn(self, turn: int) -> None:
        """Raise NotLeader if the role has changed since."""

    def check_enough(self) -> None:
        """Raise TooFewInSync while fewer members are in sync than the table requires."""

    @property
    def serves(self) -> bool:
        """Whether readers without a memory may be answered."""

    async def wait_to_serve(self) -> None:
        """Wait until they may; raises NotLeader when the role changes, LeaderNotAvailable when it takes long."""

    def standby(self, cut: int) -> Tablet:
        """A copy that follows and knows that everything below ``cut`` is committed; raises NotLeader for any other."""

    async def confirmed(self, wait_s: float) -> None:
        """Wait until it is certain that nobody else led after this was asked (R22).

        Raises NotLeader when the role changes, NotConfirmed when a member does not answer in time.
        """

    async def sealed(self, stage_id: bytes) -> None:
        """Wait until every member has a sealed stage; raises NotLeader when the role changes."""
