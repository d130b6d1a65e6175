"""Operating a cluster of machines: where copies are, moving them, servers that leave, elections."""

from __future__ import annotations

from collections.abc import Sequence

from strom.aio.session import Session
from strom.client.admin.copies_admin import BucketCopies, CopiesAdmin
from strom.client.admin.operations_admin import (
    HeldCopy,
    MovePlan,
    OperationsAdmin,
    RebalanceStatus,
    RowLoss,
)
from strom.model.table import TablePath


class ClusterOperations:
    """What a ``Database`` offers to those who operate its cluster."""

    def __init__(self, session: Session, name: str) -> None:
        self.session = session
        """The connection that its tables share."""
        self.name = name
        """The database whose name may be left out."""

    async def bucket_copies(self, table: str | None = None) -> list[BucketCopies]:
        """Where the copies of the buckets of a table, or of all tables, are in a cluster."""
        path = None if table is None else TablePath.parse(table, self.name)
        return await CopiesAdmin(self.session.cluster).buckets(path)

    async def move_bucket(
        self,
        table: str,
        bucket: int,
        *,
        to: Sequence[int] = (),
        leader: int | None = None,
        partition: str | None = None,
    ) -> BucketCopies:
        """Let other servers have the copies of a bucket, or lead it; see ``strom.Database.move_bucket``."""
        path = TablePath.parse(table, self.name)
        return await CopiesAdmin(self.session.cluster).move(path, bucket, partition, to, leader)

    async def plan_rebalance(self, *, leaders_only: bool = False) -> MovePlan:
        """What a rebalance would move; ``rebalance(plan)`` does exactly that."""
        return await OperationsAdmin(self.session.cluster).plan(leaders_only=leaders_only)

    async def rebalance(self, plan: MovePlan | None = None, *, leaders_only: bool = False) -> RebalanceStatus:
        """Even out copies and leaders in the background; see ``strom.Database.rebalance``."""
        found = plan or await self.plan_rebalance(leaders_only=leaders_only)
        return await OperationsAdmin(self.session.cluster).start(found.id)

    async def rebalance_status(self) -> RebalanceStatus | None:
        """How far the newest rebalance is; None if there was none."""
        return await OperationsAdmin(self.session.cluster).progress()

    async def cancel_rebalance(self) -> None:
        """Cancel the rebalance that runs; see ``strom.Database.cancel_rebalance``."""
        await OperationsAdmin(self.session.cluster).cancel()

    async def plan_decommission(self, server: int, *, fewer_racks: bool = False) -> MovePlan:
        """What would take all copies off a server; ``decommission(server, plan)`` does exactly that."""
        return await OperationsAdmin(self.session.cluster).plan(leaving=server, fewer_racks=fewer_racks)

    async def decommission(
        self, server: int, plan: MovePlan | None = None, *, fewer_racks: bool = False
    ) -> RebalanceStatus:
        """Take all copies off a server; see ``strom.Database.decommission``."""
        found = plan or await self.plan_decommission(server, fewer_racks=fewer_racks)
        return await OperationsAdmin(self.session.cluster).start(found.id)

    async def cancel_decommission(self, server: int) -> None:
        """Let a server stay after all; see ``strom.Database.cancel_decommission``."""
        await OperationsAdmin(self.session.cluster).cancel(server)

    async def copy_positions(
        self, table: str, bucket: int, *, partition: str | None = None
    ) -> tuple[BucketCopies, list[HeldCopy]]:
        """A bucket, and what each of its copies holds."""
        path = TablePath.parse(table, self.name)
        return await OperationsAdmin(self.session.cluster).positions(path, bucket, partition)

    async def elect(
        self,
        table: str,
        bucket: int | None = None,
        *,
        partition: str | None = None,
        unclean: int | None = None,
        epoch: int | None = None,
    ) -> list[BucketCopies]:
        """Let preferred servers lead, or one that may lack rows; see ``strom.Database.elect``."""
        path = TablePath.parse(table, self.name)
        admin = OperationsAdmin(self.session.cluster)
        return await admin.elect(path, bucket, partition, unclean=unclean, epoch=epoch)

    async def losses(self) -> list[RowLoss]:
        """Elections of a cluster that may have lost acknowledged rows, the newest first."""
        return await OperationsAdmin(self.session.cluster).losses()
