"""Staged writes in the buckets of this server: StageRows, DropStages, and applying the coordinator's decisions.

A piece of a stage is written in the bucket's lane; a seal is acknowledged when it is as durable as the table promises,
on every copy of the bucket that is in sync.
Each decision is applied by one lane job, so that other writers get their turn between two groups, never inside one. The
stages of a decision are freed after its group is durable, and only then does it count as applied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from strom.errors import Corrupt, InvalidRequest, Refused, StromError
from strom.log.groups import Origin
from strom.model.bucket import BucketId
from strom.protocol.api_keys import DROP_STAGES, STAGE_ROWS, Api
from strom.protocol.message import Message, whole
from strom.protocol.messages import stages as messages
from strom.record.batch import BatchLimits, heaviest, read_header
from strom.rpc.call import Call
from strom.rpc.call_memory import BudgetShare
from strom.runtime.clock import Clock
from strom.runtime.files import Bytes
from strom.runtime.metrics import Metrics
from strom.server.background.checkpoints import Checkpoints
from strom.server.background.disk_space import DiskSpace
from strom.server.background.group_commit import GroupCommit
from strom.server.background.stage_expiry import StageExpiry
from strom.server.calls.bucket_errors import error_fields, refused
from strom.server.calls.dispatch import CallHandler
from strom.server.calls.keys.upserts import KEY_COPIES, UpsertBatch
from strom.server.calls.writes import BULK_BYTES_MIN, MEMORY_FREE
from strom.server.tablets.table_facts import TableFacts, Tables
from strom.server.tablets.tablet_slot import TabletSlot, in_lane
from strom.server.tablets.tablets import Tablets, wait_for
from strom.server.tablets.waiting import reached
from strom.tablet.publishing import Applied, Commit, KeyChanges, PieceForm, Skipped
from strom.tablet.stages import StagePiece, StageState
from strom.tablet.tablet import Tablet

INLINE_BYTES_MAX = 64 * 1024
"""A larger piece leaves the loop."""
STAGES_MAX = 10_000
"""Stages that one request may name for a bucket."""

logger = logging.getLogger(__name__)


class StageCalls:
    """Answers for the buckets of this server."""

    def __init__(
        self,
        tablets: Tablets,
        tables: Tables,
        commit: GroupCommit,
        checkpoints: Checkpoints,
        space: DiskSpace,
        clock: Clock,
        limits: BatchLimits,
        expiry: StageExpiry,
        metrics: Metrics,
    ) -> None:
        self._tablets = tablets
        self._tables = tables
        self._commit = commit
        self._checkpoints = checkpoints
        self._space = space
        self._clock = clock
        self._limits = limits
        self._expiry = expiry
        self._groups = metrics.counter("strom_groups_published_total", "Decisions published in a bucket")
        self._lost = metrics.counter(
            "strom_stages_lost_total", "Stages that were decided and gone after power loss (durability os)"
        )
        self._skipped = metrics.counter(
            "strom_stages_skipped_total", "Stages that were decided and left out because somebody said so"
        )

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {STAGE_ROWS: self.stage_rows, DROP_STAGES: self.drop_stages}

    # --- staging -------------------------------------------------------------------------------------------

    async def stage_rows(self, call: Call) -> Message:
        """Add a piece to a stage; a sealed one is acknowledged when it is durable."""
        request: messages.StageRowsRequest = call.request
        try:
            self._space.refuse_when_full()
            bucket = BucketId(request.table_id, request.partition_id, request.bucket_id)
            slot = self._tablets.slot(bucket)
            tablet, staged = await self._staged(slot, request, call.share)
            if staged.seal:
                self._commit.request(tablet.stages)
                if tablet.stages.seals_durable < staged.seal:
                    await reached(tablet.stages.pending, staged.seal)
            if slot.role is not None and staged.deadline_ms is not None:
                await slot.role.sealed(bytes(request.stage_id))
        except Exception as error:
            return refused(messages.StageRowsResponse, request, error)
        return messages.StageRowsResponse(
            partition_id=request.partition_id,
            bucket_id=request.bucket_id,
            rows=staged.rows,
            deadline_ms=staged.deadline_ms,
        )

    async def _staged(
        self, slot: TabletSlot, request: messages.StageRowsRequest, share: BudgetShare
    ) -> tuple[Tablet, StageState]:
        records = memoryview(b"" if request.records is None else whole(request.records))
        facts = (
            self._tables.with_schema(request.table_id, read_header(records).schema_id)
            if len(records)
            else self._tables.of(request.table_id)
        )
        form = self._form(facts)
        if request.columns and form.read is None:
            raise InvalidRequest(f"{facts.table.path} is a log table: rows have all columns")
        piece = StagePiece(
            bytes(request.stage_id),
            request.sink,
            request.epoch,
            request.lease_ms,
            request.sequence,
            tuple(request.columns),
            records,
            request.seal,
        )
        now_ms = self._clock.now_ms()

        def stage(tablet: Tablet) -> tuple[Tablet, StageState]:
            tablet.stages.on_failure = tablet.fail
            return tablet, tablet.stage_piece(piece, form=form, now_ms=now_ms)

        heavy = KEY_COPIES * heaviest(records) if len(records) else 0
        small = form.read is None and max(len(records), heavy) <= INLINE_BYTES_MAX
        memory = partial(share.need, heavy) if heavy > MEMORY_FREE else None
        return await in_lane(slot, stage, small=small, bulk=len(records) >= BULK_BYTES_MIN, memory=memory)

    def _form(self, facts: TableFacts) -> PieceForm:
        """How the pieces of a table are read, now and when they are published."""

        def read(records: Bytes, columns: Any, *, checked: bool) -> KeyChanges:
            view = memoryview(records)
            header = read_header(view)
            schema = facts.schema(header.schema_id)
            return UpsertBatch(view, header, facts.keys, schema, columns, self._limits).read(checked=checked)

        schema = facts.table.schema
        return PieceForm(schema.schema_id, facts.layout_of, read if schema.primary_key else None)

    async def drop_stages(self, call: Call) -> Message:
        """Free stages that nobody will publish; a sealed one only when no decision lists it."""
        request: messages.DropStagesRequest = call.request
        answers = [await self._drop_of(request.table_id, one) for one in request.buckets_req]
        return messages.DropStagesResponse(buckets_resp=answers)

    async def _drop_of(
        self, table_id: int, wanted: messages.DropStagesBucketRequest
    ) -> messages.DropStagesBucketResponse:
        try:
            ids = _stage_ids(wanted.stage_ids)
            slot = self._tablets.slot(BucketId(table_id, wanted.partition_id, wanted.bucket_id))
            sealed = await in_lane(slot, lambda tablet: _drop_unsealed(tablet, ids))
            free = await self._expiry.given_up(slot.bucket, sealed) if sealed else ()
            if free:
                await in_lane(slot, lambda tablet: tablet.drop_stages(free))
        except Exception as error:
            return refused(messages.DropStagesBucketResponse, wanted, error)
        return messages.DropStagesBucketResponse(partition_id=wanted.partition_id, bucket_id=wanted.bucket_id)

    # --- publishing ----------------------------------------------------------------------------------------

    async def apply(self, request: messages.ApplyStagesRequest) -> messages.ApplyStagesResponse:
        """Publish what the coordinator decided; for the coordinator alone."""
        answers = await asyncio.gather(*(self._apply(one) for one in request.buckets_req))
        return messages.ApplyStagesResponse(buckets_resp=answers)

    async def _apply(self, wanted: messages.ApplyStagesBucketRequest) -> messages.ApplyStagesBucketResponse:
        bucket = BucketId(wanted.table_id, wanted.partition_id, wanted.bucket_id)
        applied: int | None = None
        failure: dict[str, Any] = {}
        skipped: list[Skipped] = []
        try:
            applied = await self._published(bucket, [_commit(one) for one in wanted.commits], skipped)
        except Exception as error:
            failure = error_fields(error)
            logger.info(
                "publishing in bucket %s: %s", bucket, failure["error_message"]
            )  # the coordinator logs it as a warning
        return messages.ApplyStagesBucketResponse(
            table_id=wanted.table_id,
            partition_id=wanted.partition_id,
            bucket_id=wanted.bucket_id,
            **failure,
            applied=applied,
            skipped=[
                messages.WireSkippedStage(number=one.number, stage_id=one.stage_id, reason=one.reason)
                for one in skipped
            ],
        )

    async def _published(self, bucket: BucketId, commits: list[Commit], skipped: list[Skipped]) -> int:
        """Apply decisions in order, wait until they are visible, free their stages; returns the newest one applied."""
        slot, facts = self._tablets.slot(bucket), self._tables.of(bucket.table_id)
        form = self._form(facts)
        for commit in commits:
            bulk = slot.tablet is not None and slot.tablet.stages.bytes >= BULK_BYTES_MIN
            try:
                tablet, done = await in_lane(
                    slot, partial(_group, commit, form, self._clock.now_ms()), bulk=bulk
                )
            except (Refused, Corrupt) as error:
                raise _of_decision(error, commit.origin) from error
            skipped += done.skipped
            self._count(slot, tablet, facts, commit, done)
            tablet.advance()
            if tablet.durability == "group":
                self._commit.request(tablet)
        while True:
            tablet = await wait_for(slot.opened())
            end = tablet.log.groups.end_of(commits[-1].origin.number) if commits else 0
            if tablet.high_watermark >= end:
                break
            await reached(tablet.pending, end)
        return await in_lane(slot, lambda tablet: _released(tablet, commits))

    def _count(
        self, slot: TabletSlot, tablet: Tablet, facts: TableFacts, commit: Commit, done: Applied
    ) -> None:
        tablet.check_online()  # its disk failed, or it was dropped, while it was off the loop
        if not done.groups:
            return
        self._groups.inc()
        facts.traffic.rows_in.inc(done.rows)
        facts.traffic.bytes_in.inc(done.size)
        self._checkpoints.appended(slot, tablet, done.size)
        for one in done.skipped:
            self._skipped.inc()
            logger.error(
                "bucket %s: decision %d (sink %s, epoch %d) was published WITHOUT stage %s, as an operator asked: %s",
                slot.bucket,
                *commit.origin[:3],
                one.stage_id.hex(),
                one.reason,
            )
        if done.lost:
            self._lost.inc(done.lost)
            logger.error(
                "bucket %s: %d stages of decision %d (sink %s, epoch %d) were lost in a power failure; the table's "
                "durability is os",
                slot.bucket,
                done.lost,
                *commit.origin[:3],
            )


def _group(commit: Commit, form: PieceForm, now_ms: int, tablet: Tablet) -> tuple[Tablet, Applied]:
    return tablet, tablet.apply([commit], form=form, now_ms=now_ms)


def _released(tablet: Tablet, commits: list[Commit]) -> int:
    tablet.release(commits)
    return tablet.applied


def _commit(message: messages.ApplyCommit) -> Commit:
    origin = Origin(message.number, message.sink, message.epoch, message.overwrite)
    return Commit(origin, _stage_ids(message.stage_ids), bool(message.skip_lost))


def _of_decision(error: StromError, origin: Origin) -> StromError:
    """The error, with the name of the sink that holds up the bucket."""
    return type(error)(
        f"decision {origin.number} of sink {origin.sink!r} cannot be published: {error.message}",
        **error.facts,
    )


def _drop_unsealed(tablet: Tablet, stage_ids: tuple[bytes, ...]) -> list[bytes]:
    """Drop the unsealed stages; returns the sealed ones."""
    sealed = [one for one in stage_ids if tablet.stages.has(one)]
    tablet.drop_stages([one for one in stage_ids if one not in sealed and not tablet.stages.is_damaged(one)])
    return sealed


def _stage_ids(ids: Any) -> tuple[bytes, ...]:
    if len(ids) > STAGES_MAX:
        raise InvalidRequest(f"a bucket has at most {STAGES_MAX} stages, not {len(ids)}")
    return tuple(dict.fromkeys(bytes(one) for one in ids))
