"""The peer's calls about servers and rebalances, on the same mechanism as ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from strom.coordinator import commands
from strom.coordinator.catalog import Catalog
from strom.coordinator.operation_rows import PlannedMove, RebalanceRecord, Tag
from strom.coordinator.operations.rebalances import state_of
from strom.errors import InvalidRequest, NoRebalance, RebalanceRunning, UnknownServer
from strom.protocol.api_keys import (
    ADD_SERVER_TAG,
    CANCEL_REBALANCE,
    GET_CLUSTER_HEALTH,
    LIST_REBALANCE_PROGRESS,
    REBALANCE,
    REMOVE_SERVER_TAG,
    Api,
)
from strom.protocol.message import Message
from strom.protocol.messages import rebalance
from strom.replication.elections import has_leader
from strom.replication.rebalance import RebalanceGoals
from strom.rpc.call import Call
from strom.server.calls.dispatch import CallHandler
from strom.server.membership.operation_calls import Able
from strom.server.membership.rebalance_plans import RebalancePlans
from strom.server.tablets.catalog_view import CatalogView

TAGS: dict[int, Tag] = {0: "leaving", 1: "resting"}
COPIES, LEADERS, RACKS = 0, 1, 2
NOT_STARTED, RUNNING, DONE, CANCELLED = 0, 1, 3, 4
GREEN, YELLOW, RED = 0, 1, 2


class PeerRebalanceCalls:
    """Answers in the active coordinator's process."""

    def __init__(self, view: CatalogView, plans: RebalancePlans, able: Able) -> None:
        self._view = view
        self._plans = plans
        self._able = able

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {
            ADD_SERVER_TAG: self.add_tag,
            REMOVE_SERVER_TAG: self.remove_tag,
            REBALANCE: self.rebalance,
            LIST_REBALANCE_PROGRESS: self.progress,
            CANCEL_REBALANCE: self.cancel,
            GET_CLUSTER_HEALTH: self.health,
        }

    async def add_tag(self, call: Call) -> Message:
        """Tag servers that go for good, or for a while. They must be there."""
        request: rebalance.AddServerTagRequest = call.request
        away = sorted(set(request.server_ids) - self._able())
        if away:
            raise UnknownServer(f"server {away[0]} does not answer, so it cannot be tagged", server=away[0])
        await self._view.perform(commands.add_tags, list(request.server_ids), _tag(request.server_tag))
        return rebalance.AddServerTagResponse()

    async def remove_tag(self, call: Call) -> Message:
        """Take tags back."""
        request: rebalance.RemoveServerTagRequest = call.request
        await self._view.perform(commands.remove_tags, list(request.server_ids), _tag(request.server_tag))
        return rebalance.RemoveServerTagResponse()

    async def rebalance(self, call: Call) -> Message:
        """Plan, and carry out at once."""
        record = self._view.fresh().operations.rebalance
        if record is not None and record.under_way:
            raise RebalanceRunning(f"rebalance {record.rebalance_id} is {record.state}")
        plan = await self._plans.plan(_goals(call.request.goals))
        await self._plans.start(plan)
        return rebalance.RebalanceResponse(rebalance_id=plan.plan_id)

    def progress(self, call: Call) -> Message:
        """The newest rebalance, bucket by bucket."""
        catalog, able = self._view.fresh(), self._able()
        record = _record(catalog, call.request.rebalance_id)
        tables: dict[int, list[rebalance.WireBucketProgress]] = {}
        states = []
        for move in catalog.operations.moves():
            status = _bucket_status(catalog, record, move, able)
            states.append(status)
            tables.setdefault(move.bucket.table_id, []).append(
                rebalance.WireBucketProgress(rebalance_plan=_plan(move), rebalance_status=status)
            )
        return rebalance.ListRebalanceProgressResponse(
            rebalance_id=record.rebalance_id,
            rebalance_status=_status(record, states),
            table_progress=[
                rebalance.WireTableProgress(table_id=table_id, buckets_progress=found)
                for table_id, found in tables.items()
            ],
        )

    async def cancel(self, call: Call) -> Message:
        """Cancel the rebalance that is under way."""
        await self._view.perform(commands.cancel_rebalance, call.request.rebalance_id)
        return rebalance.CancelRebalanceResponse()

    def health(self, call: Call) -> Message:
        """How many copies and leaders there are, and how many there should be."""
        catalog, able = self._view.fresh(), self._able()
        copies = in_sync = buckets = led = 0
        for bucket in catalog.replicas:
            entry = catalog.replicas.get(bucket)
            if entry is not None:
                buckets += 1
                copies += len(entry.replicas)
                in_sync += sum(one.server_id in able for one in entry.in_sync)
                led += has_leader(entry, catalog.registrations, able)
        status = RED if led < buckets else YELLOW if in_sync < copies else GREEN
        return rebalance.GetClusterHealthResponse(
            num_replicas=copies,
            in_sync_replicas=in_sync,
            num_leader_replicas=buckets,
            active_leader_replicas=led,
            status=status,
        )


def _tag(number: int) -> Tag:
    if number not in TAGS:
        raise InvalidRequest(f"{number} is no tag of a server: 0 goes for good, 1 for a while")
    return TAGS[number]


def _goals(numbers: Collection[int]) -> RebalanceGoals:
    found = set(numbers)
    if not found or not found <= {COPIES, LEADERS, RACKS}:
        raise InvalidRequest(f"{sorted(found)} are no goals: name some of 0 copies, 1 leaders, 2 racks")
    return RebalanceGoals(
        evacuate=found != {LEADERS}, racks=RACKS in found, copies=COPIES in found, leaders=LEADERS in found
    )


def _record(catalog: Catalog, rebalance_id: str | None) -> RebalanceRecord:
    record = catalog.operations.rebalance
    if record is None or rebalance_id not in (None, record.rebalance_id):
        raise NoRebalance("there was no rebalance" + (f" {rebalance_id}" if rebalance_id else ""))
    return record


def _bucket_status(catalog: Catalog, record: RebalanceRecord, move: PlannedMove, able: frozenset[int]) -> int:
    state = state_of(catalog, move, able)
    if record.state == "done":
        return DONE if state != "given up" else CANCELLED
    if state == "waiting" and record.state != "running":
        return CANCELLED
    return {"waiting": NOT_STARTED, "moving": RUNNING, "done": DONE, "given up": CANCELLED}[state]


def _status(record: RebalanceRecord, states: list[int]) -> int:
    if record.state == "running":
        return NOT_STARTED if states and set(states) == {NOT_STARTED} else RUNNING
    return DONE if record.state == "done" else CANCELLED


def _plan(move: PlannedMove) -> rebalance.WireBucketPlan:
    return rebalance.WireBucketPlan(
        partition_id=move.bucket.partition_id,
        bucket_id=move.bucket.bucket,
        original_leader=move.leader,
        new_leader=move.after[0],
        original_replicas=move.before,
        new_replicas=move.after,
    )
