"""What a person asks of the active coordinator: rebalances, servers that leave, elections, and what was lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from strom.coordinator import commands
from strom.coordinator.catalog import Catalog
from strom.coordinator.new_copies import buckets_of, promise_of
from strom.coordinator.operation_rows import PlannedMove
from strom.coordinator.operations.rebalances import progress_of
from strom.errors import InvalidRequest, NoRebalance
from strom.model.bucket import BucketId
from strom.protocol.api_keys import (
    COPY_POSITIONS,
    ELECT_LEADER,
    LIST_LOSSES,
    PLAN_REBALANCE,
    REBALANCE_PROGRESS,
    START_REBALANCE,
    STOP_REBALANCE,
    Api,
)
from strom.protocol.message import Message
from strom.protocol.messages import operations
from strom.replication.elections import answering, has_leader
from strom.replication.rebalance import ALL_GOALS, LEADERS_ALONE
from strom.rpc.call import Call
from strom.runtime.clock import Clock
from strom.server.calls.catalog.copies import bucket_named, partition_name_of, wire_copies
from strom.server.calls.catalog.descriptions import path_message, path_of
from strom.server.calls.dispatch import CallHandler
from strom.server.membership.rebalance_plans import RebalancePlan, RebalancePlans
from strom.server.membership.recovery import PowerRecovery
from strom.server.tablets.catalog_view import CatalogView

MOVES_SHOWN_MAX = 10_000
UNDER_WAY_SHOWN_MAX = 200

Able = Callable[[], frozenset[int]]
"""The servers that answer and are not about to stop."""


class RebalanceCalls:
    """Answers in the active coordinator's process."""

    def __init__(self, view: CatalogView, plans: RebalancePlans, able: Able) -> None:
        self._view = view
        self._plans = plans
        self._able = able

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {
            PLAN_REBALANCE: self.plan,
            START_REBALANCE: self.start,
            REBALANCE_PROGRESS: self.progress,
            STOP_REBALANCE: self.stop,
        }

    async def plan(self, call: Call) -> Message:
        """What would be moved."""
        request: operations.PlanRebalanceRequest = call.request
        if request.leaving is not None:
            plan = await self._plans.plan_leaving(request.leaving, fewer_racks=request.fewer_racks)
        else:
            plan = await self._plans.plan(LEADERS_ALONE if request.leaders_alone else ALL_GOALS)
        catalog = self._view.catalog
        return operations.PlanRebalanceResponse(
            plan_id=plan.plan_id,
            moves=_wire_moves(catalog, plan.moves[:MOVES_SHOWN_MAX]),
            move_count=len(plan.moves),
            servers=_shares(catalog, plan, self._able()),
        )

    async def start(self, call: Call) -> Message:
        """Carry a plan out."""
        await self._plans.start(self._plans.shown(call.request.plan_id))
        return operations.StartRebalanceResponse()

    def progress(self, call: Call) -> Message:
        """How far the newest rebalance is."""
        catalog, able = self._view.fresh(), self._able()
        record = catalog.operations.rebalance
        if record is None:
            return operations.RebalanceProgressResponse()
        found = progress_of(catalog, able)
        left = [*found.waiting, *found.moving] if record.under_way else []
        targets = {one for move in left for one in move.after} - able
        return operations.RebalanceProgressResponse(
            rebalance_id=record.rebalance_id,
            state=record.state,
            started_ms=record.started_ms,
            ended_ms=record.ended_ms,
            waiting=len(found.waiting),
            moving=len(found.moving),
            done=len(found.done),
            given_up=len(found.given_up),
            bytes=_bytes(catalog.operations.moves()),
            bytes_left=_bytes(left),
            leaving=record.leaving,
            under_way=_wire_moves(catalog, found.moving[:UNDER_WAY_SHOWN_MAX]),
            waits_for=sorted(targets),
        )

    async def stop(self, call: Call) -> Message:
        """Cancel a rebalance, or a server's leaving."""
        request: operations.StopRebalanceRequest = call.request
        staying = () if request.staying is None else (request.staying,)
        record = self._view.fresh().operations.rebalance
        runs = record is not None and record.state == "running"
        if staying and not (runs and record is not None and set(staying) <= set(record.leaving)):
            await self._view.perform(commands.remove_tags, staying, "leaving")
        elif not runs:
            raise NoRebalance("no rebalance runs")
        else:
            await self._view.perform(commands.cancel_rebalance, staying=staying)
        return operations.StopRebalanceResponse()


class ElectionCalls:
    """Answers in the active coordinator's process."""

    def __init__(self, view: CatalogView, recovery: PowerRecovery, able: Able, clock: Clock) -> None:
        """``recovery``: asks servers what their copies hold."""
        self._view = view
        self._recovery = recovery
        self._able = able
        self._clock = clock

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {
            COPY_POSITIONS: self.positions,
            ELECT_LEADER: self.elect,
            LIST_LOSSES: self.losses,
        }

    async def positions(self, call: Call) -> Message:
        """What each copy of a bucket holds: what would be lost if it led."""
        request: operations.CopyPositionsRequest = call.request
        catalog, able = self._view.fresh(), self._able()
        table = catalog.table(path_of(request.table_path))
        bucket = bucket_named(catalog, table, request.partition_name, request.bucket_id)
        found = (await self._recovery.positions([bucket], able)).get(bucket, {})
        catalog = self._view.catalog
        entry = catalog.replicas.get(bucket)
        assert entry is not None
        counted = answering(entry, catalog.registrations, found, promise_of(catalog, table.description))
        return operations.CopyPositionsResponse(
            bucket=wire_copies(catalog, table, bucket, request.partition_name, able),
            positions=[
                operations.WireCopyPosition(
                    server_id=one,
                    in_sync=entry.member_of(one) is not None,
                    last_epoch=counted[one].last_epoch if one in counted else None,
                    end=counted[one].end if one in counted else None,
                )
                for one in entry.servers
            ],
        )

    async def elect(self, call: Call) -> Message:
        """Let preferred servers lead, or a named one whatever its copy lacks."""
        request: operations.ElectLeaderRequest = call.request
        catalog = self._view.fresh()
        table = catalog.table(path_of(request.table_path))
        if request.bucket_id is None:
            buckets = list(buckets_of(catalog, table))
        else:
            buckets = [bucket_named(catalog, table, request.partition_name, request.bucket_id)]
        if request.unclean_id is not None:
            await self._elect_uncleanly(buckets, request, call.principal)
        else:
            await self._view.perform_everywhere(commands.prefer_leaders, buckets, alive=self._able())
        now, able = self._view.catalog, self._able()
        return operations.ElectLeaderResponse(
            buckets=[
                wire_copies(now, table, one, partition_name_of(now, one), able)
                for one in buckets
                if now.replicas.get(one) is not None
            ]
        )

    async def _elect_uncleanly(
        self, buckets: Sequence[BucketId], request: operations.ElectLeaderRequest, by: str | None
    ) -> None:
        if request.bucket_id is None or request.unclean_id is None or request.epoch is None:
            raise InvalidRequest("an unclean election needs a bucket, a server, and the epoch that was shown")
        (bucket,) = buckets
        catalog, able = self._view.catalog, self._able()
        entry = catalog.replicas.get(bucket)
        assert entry is not None
        if has_leader(entry, catalog.registrations, able):
            raise InvalidRequest(
                f"server {entry.leader} leads {catalog.bucket_name(bucket)}: there is nothing to give up. "
                "To let another one lead, move the leader",
                bucket=str(bucket),
            )
        found = (await self._recovery.positions([bucket], able)).get(bucket, {})
        elected = await self._view.perform_everywhere(
            commands.elect_uncleanly,
            bucket,
            found,
            request.unclean_id,
            epoch=request.epoch,
            now_ms=self._clock.now_ms(),
            by=by or "somebody",
        )
        if elected is None:
            raise InvalidRequest(
                f"server {request.unclean_id} does not answer for a copy of "
                f"{catalog.bucket_name(bucket)}: it cannot lead",
                bucket=str(bucket),
            )

    def losses(self, call: Call) -> Message:
        """Elections that may have lost acknowledged rows, the newest first."""
        catalog = self._view.fresh()
        found = []
        for bucket in catalog.operations.buckets_with_losses():
            table = catalog.table_by_id(bucket.table_id)
            for one in catalog.operations.losses_of(bucket) if table is not None else ():
                assert table is not None
                found.append(
                    operations.WireLoss(
                        table_path=path_message(table.path),
                        partition_name=partition_name_of(catalog, bucket),
                        bucket_id=bucket.bucket,
                        time_ms=one.time_ms,
                        epoch=one.epoch,
                        leader_id=one.leader,
                        end=one.end,
                        missing=one.missing,
                        by=one.by,
                    )
                )
        return operations.ListLossesResponse(losses=sorted(found, key=lambda one: -one.time_ms))


# --- for people ----------------------------------------------------------------------------------------------------


def _wire_moves(catalog: Catalog, moves: Iterable[PlannedMove]) -> list[operations.WireMove]:
    found = []
    for one in moves:
        table = catalog.table_by_id(one.bucket.table_id)
        if table is not None:
            found.append(
                operations.WireMove(
                    table_path=path_message(table.path),
                    partition_name=partition_name_of(catalog, one.bucket),
                    bucket_id=one.bucket.bucket,
                    leader_id=one.leader,
                    before=one.before,
                    after=one.after,
                    bytes=one.bytes,
                )
            )
    return found


def _bytes(moves: Iterable[PlannedMove]) -> int:
    return sum(one.bytes for one in moves)


def _shares(catalog: Catalog, plan: RebalancePlan, able: frozenset[int]) -> list[operations.WireServerShare]:
    """What every server has, by the replicas that are wanted, before and after a plan; who leads, by who leads now."""
    after = {one.bucket: one for one in plan.moves}
    copies, leads, bytes_in = (
        (Counter[int](), Counter[int]()),
        (Counter[int](), Counter[int]()),
        Counter[int](),
    )
    for bucket in catalog.replicas:
        entry, move = catalog.replicas.get(bucket), after.get(bucket)
        if entry is None:
            continue
        copies[0].update(entry.wanted)
        leads[0][entry.leader] += 1
        copies[1].update(entry.wanted if move is None else move.after)
        leads[1][entry.leader if move is None else move.after[0]] += 1
        new = () if move is None else tuple(set(move.after) - set(move.before))
        for one in new:
            bytes_in[one] += 0 if move is None else move.bytes // len(new)
    return [
        operations.WireServerShare(
            server_id=one,
            rack=registration.rack,
            state=_state(catalog, one, plan.leaving, able),
            leaders_before=leads[0][one],
            leaders_after=leads[1][one],
            copies_before=copies[0][one],
            copies_after=copies[1][one],
            bytes_in=bytes_in[one],
        )
        for one, registration in sorted(catalog.registrations.items())
    ]


def _state(catalog: Catalog, server_id: int, leaving: Sequence[int], able: frozenset[int]) -> str:
    tag = "leaving" if server_id in leaving else catalog.operations.tags.get(server_id)
    return tag or ("up" if server_id in able else "away")
