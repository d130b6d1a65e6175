"""Operating a cluster: rebalances, servers that leave, elections, and what was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from strom.client.admin.admin import wire_path
from strom.client.admin.copies_admin import BucketCopies, copies_of
from strom.client.cluster.cluster import Cluster
from strom.model.table import TablePath
from strom.protocol.api_keys import (
    COPY_POSITIONS,
    ELECT_LEADER,
    LIST_LOSSES,
    PLAN_REBALANCE,
    REBALANCE_PROGRESS,
    START_REBALANCE,
    STOP_REBALANCE,
)
from strom.protocol.messages import operations
from strom.protocol.messages.tables import WireTablePath


@dataclass(frozen=True)
class CopyMove:
    """A bucket of a rebalance: the servers of its copies before and after, the preferred leader first.

    ``leader`` leads it when the plan is made; ``bytes`` are to be copied, as far as that is known.
    """

    table: str
    partition: str | None
    bucket: int
    leader: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class ServerShare:
    """What a server has before and after a rebalance. ``state``: up, away, leaving or resting."""

    server: int
    rack: str
    state: str
    leaders_before: int
    leaders_after: int
    copies_before: int
    copies_after: int
    bytes_in: int


@dataclass(frozen=True)
class MovePlan:
    """What a rebalance would move. ``moves`` are the first ten thousand of ``count``."""

    id: str
    moves: tuple[CopyMove, ...]
    count: int
    servers: tuple[ServerShare, ...]

    @property
    def bytes(self) -> int:
        """To be copied in all, as far as that is known."""
        return sum(one.bytes_in for one in self.servers)


@dataclass(frozen=True)
class RebalanceStatus:
    """How far a rebalance is. ``state``: running, cancelling, cancelled or done.

    Of its moves some are ``waiting``, ``moving`` or ``done``; those that somebody moved elsewhere, or dropped, are
    ``given_up``. ``leaving``: servers that it empties. ``waits_for``: servers that do not answer and shall get copies.
    """

    id: str
    state: str
    started_ms: int
    ended_ms: int
    waiting: int
    moving: int
    done: int
    given_up: int
    bytes: int
    bytes_left: int
    leaving: tuple[int, ...]
    under_way: tuple[CopyMove, ...]
    waits_for: tuple[int, ...]


@dataclass(frozen=True)
class HeldCopy:
    """What a copy holds: its log ends at ``end``, in ``last_epoch``. Both are None if its server does not say."""

    server: int
    in_sync: bool
    last_epoch: int | None
    end: int | None


@dataclass(frozen=True)
class RowLoss:
    """An election that may have lost acknowledged rows: the leader's log ended at ``end``.

    ``missing``: servers that were in sync and did not answer. ``by``: who decided; empty where the rules did.
    """

    table: str
    partition: str | None
    bucket: int
    time_ms: int
    epoch: int
    leader: int
    end: int
    missing: tuple[int, ...]
    by: str


class OperationsAdmin:
    """Asks the active coordinator."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def plan(
        self, *, leaders_only: bool = False, leaving: int | None = None, fewer_racks: bool = False
    ) -> MovePlan:
        """What a rebalance would move, or the leaving of a server."""
        request = operations.PlanRebalanceRequest(
            leaders_alone=leaders_only, leaving=leaving, fewer_racks=fewer_racks
        )
        answer = await self._cluster.ask(PLAN_REBALANCE, request)
        return MovePlan(answer.plan_id, _moves(answer.moves), answer.move_count, _shares(answer.servers))

    async def start(self, plan_id: str) -> RebalanceStatus:
        """Carry a plan out. Asking twice does no harm."""
        await self._cluster.ask(START_REBALANCE, operations.StartRebalanceRequest(plan_id=plan_id))
        found = await self.progress()
        assert found is not None
        return found

    async def progress(self) -> RebalanceStatus | None:
        """How far the newest rebalance is; None if there was none."""
        found = await self._cluster.ask(REBALANCE_PROGRESS, operations.RebalanceProgressRequest())
        if found.rebalance_id is None:
            return None
        return RebalanceStatus(
            id=found.rebalance_id,
            state=found.state or "",
            started_ms=found.started_ms or 0,
            ended_ms=found.ended_ms or 0,
            waiting=found.waiting or 0,
            moving=found.moving or 0,
            done=found.done or 0,
            given_up=found.given_up or 0,
            bytes=found.bytes or 0,
            bytes_left=found.bytes_left or 0,
            leaving=tuple(found.leaving),
            under_way=_moves(found.under_way),
            waits_for=tuple(found.waits_for),
        )

    async def cancel(self, staying: int | None = None) -> None:
        """Cancel the rebalance that runs; with a server, its leaving."""
        await self._cluster.ask(STOP_REBALANCE, operations.StopRebalanceRequest(staying=staying))

    async def positions(
        self, table: TablePath, bucket: int, partition: str | None
    ) -> tuple[BucketCopies, list[HeldCopy]]:
        """A bucket, and what its copies hold."""
        answer = await self._cluster.ask(
            COPY_POSITIONS,
            operations.CopyPositionsRequest(
                table_path=wire_path(table), partition_name=partition, bucket_id=bucket
            ),
        )
        found = [HeldCopy(one.server_id, one.in_sync, one.last_epoch, one.end) for one in answer.positions]
        return copies_of(answer.bucket), found

    async def elect(
        self,
        table: TablePath,
        bucket: int | None,
        partition: str | None,
        *,
        unclean: int | None = None,
        epoch: int | None = None,
    ) -> list[BucketCopies]:
        """Let preferred servers lead; ``unclean``: let this one lead whatever its copy lacks."""
        request = operations.ElectLeaderRequest(
            table_path=wire_path(table),
            partition_name=partition,
            bucket_id=bucket,
            unclean_id=unclean,
            epoch=epoch,
        )
        return [copies_of(one) for one in (await self._cluster.ask(ELECT_LEADER, request)).buckets]

    async def losses(self) -> list[RowLoss]:
        """Elections that may have lost acknowledged rows, the newest first."""
        answer = await self._cluster.ask(LIST_LOSSES, operations.ListLossesRequest())
        return [
            RowLoss(
                table=_path(one.table_path),
                partition=one.partition_name,
                bucket=one.bucket_id,
                time_ms=one.time_ms,
                epoch=one.epoch,
                leader=one.leader_id,
                end=one.end,
                missing=tuple(one.missing),
                by=one.by,
            )
            for one in answer.losses
        ]


def _path(path: WireTablePath) -> str:
    return str(TablePath(path.database_name, path.table_name))


def _moves(moves: Sequence[operations.WireMove]) -> tuple[CopyMove, ...]:
    return tuple(
        CopyMove(
            table=_path(one.table_path),
            partition=one.partition_name,
            bucket=one.bucket_id,
            leader=one.leader_id,
            before=tuple(one.before),
            after=tuple(one.after),
            bytes=one.bytes,
        )
        for one in moves
    )


def _shares(servers: Sequence[operations.WireServerShare]) -> tuple[ServerShare, ...]:
    return tuple(
        ServerShare(
            server=one.server_id,
            rack=one.rack,
            state=one.state,
            leaders_before=one.leaders_before,
            leaders_after=one.leaders_after,
            copies_before=one.copies_before,
            copies_after=one.copies_after,
            bytes_in=one.bytes_in,
        )
        for one in servers
    )
