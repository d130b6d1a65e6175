"""Operating a cluster of machines: where copies are, moving them, servers that leave, elections."""

from __future__ import annotations

from collections.abc import Sequence

from strom.api.session import Session
from strom.client.admin.copies_admin import BucketCopies
from strom.client.admin.operations_admin import HeldCopy, MovePlan, RebalanceStatus, RowLoss


class ClusterOperations:
    """What a ``Database`` offers to those who operate its cluster."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def bucket_copies(self, table: str | None = None) -> list[BucketCopies]:
        """Where the copies of the buckets of a table, or of all tables, are in a cluster.

        >>> [one.leader for one in db.bucket_copies("events")]
        [1, 2, 3]
        """
        return self._session.run(self._session.face.bucket_copies(table))

    def move_bucket(
        self,
        table: str,
        bucket: int,
        *,
        to: Sequence[int] = (),
        leader: int | None = None,
        partition: str | None = None,
    ) -> BucketCopies:
        """Let the servers ``to`` have the copies of a bucket, the preferred leader first, or let another one lead.

        New copies are made in the background, and old ones removed when those are in sync. A leader needs a copy that
        is in sync.

        >>> db.move_bucket("events", 0, to=[2, 3, 4])
        >>> db.move_bucket("events", 0, leader=3)
        """
        face = self._session.face
        return self._session.run(face.move_bucket(table, bucket, to=to, leader=leader, partition=partition))

    def plan_rebalance(self, *, leaders_only: bool = False) -> MovePlan:
        """What a rebalance would move, and what each server would have then. Nothing is moved.

        >>> plan = db.plan_rebalance()
        >>> plan.count, plan.bytes
        (12, 3221225472)
        """
        return self._session.run(self._session.face.plan_rebalance(leaders_only=leaders_only))

    def rebalance(self, plan: MovePlan | None = None, *, leaders_only: bool = False) -> RebalanceStatus:
        """Even out copies and leaders over the servers, in the background; with ``leaders_only`` no copy moves.

        Without a plan, one is made and carried out at once. It goes on whatever happens to this client.

        >>> db.rebalance(plan).state
        'running'
        """
        return self._session.run(self._session.face.rebalance(plan, leaders_only=leaders_only))

    def rebalance_status(self) -> RebalanceStatus | None:
        """How far the newest rebalance, or the leaving of a server, is; None if there was none.

        >>> db.rebalance_status().done
        7
        """
        return self._session.run(self._session.face.rebalance_status())

    def cancel_rebalance(self) -> None:
        """Cancel the rebalance that runs: what has not begun stays, what is under way is taken back.

        >>> db.cancel_rebalance()
        """
        self._session.run(self._session.face.cancel_rebalance())

    def plan_decommission(self, server: int, *, fewer_racks: bool = False) -> MovePlan:
        """What would take all copies off a server. Refused if too few servers, or racks, would be left for them.

        >>> db.plan_decommission(3).count
        40
        """
        return self._session.run(self._session.face.plan_decommission(server, fewer_racks=fewer_racks))

    def decommission(
        self, server: int, plan: MovePlan | None = None, *, fewer_racks: bool = False
    ) -> RebalanceStatus:
        """Take all copies off a server, in the background. It gets no new ones, and can be stopped when this is done.

        >>> db.decommission(3).leaving
        (3,)
        """
        face = self._session.face
        return self._session.run(face.decommission(server, plan, fewer_racks=fewer_racks))

    def cancel_decommission(self, server: int) -> None:
        """Let a server stay after all: it gets copies again, and keeps those that have not left it yet.

        >>> db.cancel_decommission(3)
        """
        self._session.run(self._session.face.cancel_decommission(server))

    def copy_positions(
        self, table: str, bucket: int, *, partition: str | None = None
    ) -> tuple[BucketCopies, list[HeldCopy]]:
        """A bucket, and what each of its copies holds: what would be lost if it led.

        >>> copies, positions = db.copy_positions("events", 0)
        >>> [(one.server, one.in_sync, one.end) for one in positions]
        [(1, True, None), (2, False, 1200)]
        """
        return self._session.run(self._session.face.copy_positions(table, bucket, partition=partition))

    def elect(
        self,
        table: str,
        bucket: int | None = None,
        *,
        partition: str | None = None,
        unclean: int | None = None,
        epoch: int | None = None,
    ) -> list[BucketCopies]:
        """Let the preferred servers lead the buckets of a table, or one bucket, where their copies are in sync.

        ``unclean``: let this server lead a bucket that has no leader, though its copy may lack acknowledged rows, which
        are then lost for good. ``copy_positions`` says what each copy holds; ``epoch`` is the one it showed, so that
        nothing is given up if somebody was elected since.

        >>> db.elect("events")
        >>> db.elect("events", 0, unclean=2, epoch=7)
        """
        face = self._session.face
        return self._session.run(face.elect(table, bucket, partition=partition, unclean=unclean, epoch=epoch))

    def losses(self) -> list[RowLoss]:
        """Elections of a cluster that may have lost acknowledged rows, the newest first.

        >>> [(one.table, one.bucket, one.end) for one in db.losses()]
        [('shop.orders', 0, 1200)]
        """
        return self._session.run(self._session.face.losses())
