"""What sinks ask the coordinator: begin and decide; and what tablets may free.

The order makes it correct (coordinator/sinks.py): a sink's last decision is applied everywhere before the next one is
taken; a floor is raised before the lists are read.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from strom.coordinator import commands
from strom.coordinator.catalog import Catalog
from strom.coordinator.sink_rows import SinkRow, StagedPart
from strom.coordinator.sinks import (
    Decision,
    Proposal,
    ProposalPart,
    check_names,
    check_owner,
    check_proposal,
)
from strom.errors import KernelsCompiling, LeaderNotAvailable, StageExpired
from strom.model.bucket import BucketId
from strom.protocol.api_keys import BEGIN_SINK, DECIDE, DROP_SINK, LIST_SINKS, Api
from strom.protocol.message import Message
from strom.protocol.messages import stages as messages
from strom.rpc.call import Call
from strom.runtime.clock import Clock
from strom.server.background.decision_rollout import DecisionRollout
from strom.server.calls.dispatch import CallHandler
from strom.server.tablets.catalog_view import CatalogView

GIVEN_UP_MAX = 100_000
"""Given-up stages that are remembered: a decision that lists an older one was under way for very long."""
SETTLE_S = 20.0
"""How long a decision waits for the one before it, or for its own rows to be visible: below a call's timeout."""

logger = logging.getLogger(__name__)


class SinkCalls:
    """Answers in the coordinator's process."""

    def __init__(self, view: CatalogView, rollout: DecisionRollout, clock: Clock) -> None:
        self._view = view
        self._rollout = rollout
        self._clock = clock
        self._deciding: Counter[bytes] = Counter()
        """Stages listed by a proposal that is being decided: they must not be freed."""
        self._given_up: dict[bytes, None] = {}
        """Stages that were freed early, oldest first: a late proposal that lists them is refused."""

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {
            BEGIN_SINK: self.begin,
            DECIDE: self.decide,
            LIST_SINKS: self.list_sinks,
            DROP_SINK: self.drop_sink,
        }

    def begin(self, call: Call) -> Message:
        """What a sink has decided."""
        request: messages.BeginSinkRequest = call.request
        check_names(request.sink, request.query_id)
        catalog = self._view.catalog
        row = catalog.sinks.get(request.sink)
        check_owner(row, request.query_id)
        if row is None:
            return messages.BeginSinkResponse(version=0)
        return messages.BeginSinkResponse(version=row.number, tables=_tables(row, catalog))

    # --- deciding ----------------------------------------------------------------------------------------------

    async def decide(self, call: Call) -> Message:
        """Publish an epoch, or confirm that it is published."""
        request: messages.DecideRequest = call.request
        proposal = _proposal(request)
        check_proposal(proposal)
        listed = [one.part.stage_id for one in proposal.stages]
        self._check_not_given_up(proposal, listed)
        self._deciding.update(listed)
        try:
            decision = await self._decided(proposal)
        finally:
            self._deciding -= Counter(listed)
        self._rollout.kick()
        warnings = list(decision.warnings)
        row = self._view.catalog.sinks.get(proposal.sink)
        if request.wait and row is not None and not await self._rollout.settled(row, SETTLE_S):
            why = (
                self._rollout.compiling(row)
                or "a tablet server that has rows of it does not answer right now"
            )
            warnings.append(
                f"version {proposal.epoch} of sink {proposal.sink!r} is decided and will be visible; {why}"
            )
        return messages.DecideResponse(
            number=decision.number,
            tables=[
                messages.DecidedTable(table_id=table_id, decided=table_id in decision.decided)
                for table_id in sorted(proposal.tables)
            ],
            warnings=warnings,
        )

    async def _decided(self, proposal: Proposal) -> Decision:
        while True:
            row = self._view.catalog.sinks.get(proposal.sink)
            check_owner(row, proposal.query_id)
            await self._settle(row)
            decision: Decision | None = await self._view.perform(
                commands.decide,
                proposal,
                rolled=0 if row is None else row.number,
                now_ms=self._clock.now_ms(),
            )
            if decision is not None:
                return decision

    def _check_not_given_up(self, proposal: Proposal, listed: Sequence[bytes]) -> None:
        """Their writer gave them up: this proposal was delayed, and what it lists is gone."""
        if not any(one in self._given_up for one in listed):
            return
        row = self._view.catalog.sinks.get(proposal.sink)
        if row is not None and all(row.last.get(one, -1) >= proposal.epoch for one in proposal.tables):
            return  # decided before they were given up: the call is only repeated
        raise StageExpired(
            f"sink {proposal.sink!r}: rows of version {proposal.epoch} were given up by their writer, and are gone: "
            "stage them again",
            sink=proposal.sink,
            epoch=proposal.epoch,
        )

    async def _settle(self, row: SinkRow | None) -> None:
        if row is not None and not await self._rollout.settled(row, SETTLE_S):
            raise self._held_up(row)

    def _held_up(self, row: SinkRow) -> LeaderNotAvailable:
        compiling = self._rollout.compiling(row)
        if compiling is not None:  # nothing is lost: don't suggest going on without it
            return KernelsCompiling(compiling, sink=row.name)
        why = self._rollout.problem(row) or "a tablet server does not answer"
        return LeaderNotAvailable(
            f"sink {row.name!r}: version {row.epoch} is not yet applied everywhere, because {why}. Try again; if rows "
            "are lost for good, `strom sink skip` of the sink that is named goes on without them",
            sink=row.name,
        )

    # --- for people --------------------------------------------------------------------------------------------

    def list_sinks(self, call: Call) -> Message:
        """Every sink."""
        catalog = self._view.catalog
        return messages.ListSinksResponse(
            sinks=[
                messages.SinkFacts(
                    sink=row.name,
                    query_id=row.query_id,
                    one_shot=row.one_shot,
                    version=row.number,
                    number=row.number,
                    epoch=row.epoch,
                    pending=len(self._rollout.pending(catalog, row)),
                    tables=_tables(row, catalog),
                    problem=self._rollout.problem(row),
                    query_name=row.query_name,
                )
                for _, row in sorted(catalog.sinks.items())
            ]
        )

    def drop_sink(self, call: Call) -> Awaitable[Message]:
        """Forget a sink, once its last decision is applied."""
        request: messages.DropSinkRequest = call.request
        return self._drop(request.sink, force=bool(request.force), keep=bool(request.keep))

    async def _drop(self, sink: str, *, force: bool, keep: bool) -> Message:
        while True:
            row = self._view.catalog.sinks.get(sink)
            if row is not None and force and self._rollout.pending(self._view.catalog, row):
                row = await self._view.perform(commands.skip_lost, sink, number=row.number)
                logger.error(
                    "sink %s: publishing decision %d without the stages that are lost", sink, row.number
                )
                self._rollout.hurry()
            await self._settle(row)
            skipped = [] if row is None else self._rollout.skipped(row.number)
            if row is not None and keep:
                return messages.DropSinkResponse(skipped=skipped)
            if await self._view.perform(commands.drop_sink, sink, rolled=0 if row is None else row.number):
                self._rollout.forget([sink])
                return messages.DropSinkResponse(skipped=skipped)

    # --- what tablets ask --------------------------------------------------------------------------------------

    async def expire(self, request: messages.ExpireStagesRequest) -> messages.ExpireStagesResponse:
        """Which stages a bucket may free: raise the floor, THEN look at the lists."""
        bucket = BucketId(request.table_id, request.partition_id, request.bucket_id)
        if request.given_up:
            pinned = self._pinned(bucket)
            free = [
                one
                for late in request.stages
                if (one := bytes(late.stage_id)) not in pinned and not self._deciding[one]
            ]
            self._remember(free)
            return messages.ExpireStagesResponse(
                floor_ms=self._view.catalog.floor_of(bucket.table_id), free=free
            )
        pinned = self._pinned(bucket)
        loose = [one.deadline_ms for one in request.stages if bytes(one.stage_id) not in pinned]
        # Never beyond our own clock: a tablet whose clock runs ahead must not end all leases.
        wanted_ms = min(max(loose, default=0), self._clock.now_ms())
        floor_ms = await self._view.perform(commands.raise_floor, bucket.table_id, wanted_ms)
        pinned = self._pinned(bucket)
        dropped = not self._view.catalog.has_bucket(bucket)
        free = [
            bytes(one.stage_id)
            for one in request.stages
            if dropped or (one.deadline_ms <= floor_ms and bytes(one.stage_id) not in pinned)
        ]
        return messages.ExpireStagesResponse(floor_ms=floor_ms, free=free)

    def _remember(self, given_up: Sequence[bytes]) -> None:
        self._given_up.update(dict.fromkeys(given_up))
        while len(self._given_up) > GIVEN_UP_MAX:
            del self._given_up[next(iter(self._given_up))]

    def _pinned(self, bucket: BucketId) -> set[bytes]:
        rows = self._view.catalog.sinks.values()
        return {stage_id for row in rows for stage_id in row.stages.get(bucket, ())}


def _tables(row: SinkRow, catalog: Catalog) -> list[messages.SinkTable]:
    return [
        messages.SinkTable(
            table_id=table_id,
            last_epoch=epoch,
            name=None if (table := catalog.table_by_id(table_id)) is None else str(table.path),
        )
        for table_id, epoch in sorted(row.last.items())
    ]


def _proposal(request: messages.DecideRequest) -> Proposal:
    return Proposal(
        sink=request.sink,
        query_id=request.query_id,
        epoch=request.epoch,
        one_shot=request.one_shot,
        tables=frozenset(request.tables),
        stages=[
            ProposalPart(
                StagedPart(bytes(one.stage_id), one.table_id, one.partition_id, tuple(one.buckets)),
                one.deadline_ms,
                one.last_deadline_ms,
            )
            for one in request.stages
        ],
        overwrites=[(one.table_id, one.partition_id) for one in request.overwrites],
        query_name=request.query_name,
    )
