"""The cut of a plan: where its reads begin and end in each bucket.

A plan that must see whole decisions asks twice: the coordinator for a *snapshot* (the number of the newest decision),
and each leader for the *cut* of its buckets at that number. A plain scan needs the cut only.

A tiering round asks for cuts that survive power loss, so that the lake never gets ahead of a log: of a bucket with
several copies, power loss of all of them. It also tells how far the lake is, so that a bucket that cannot go on from
there says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from strom.errors import RequestTimeout
from strom.model.bucket import BucketId
from strom.protocol.api_keys import CUT_BUCKETS, SNAPSHOT, Api
from strom.protocol.message import Message
from strom.protocol.messages.cut import (
    CutBucketRequest,
    CutBucketResponse,
    CutBucketsRequest,
    CutBucketsResponse,
    PendingBucket,
    SnapshotRequest,
    SnapshotResponse,
)
from strom.rpc.call import Call
from strom.server.background.decision_rollout import DecisionRollout
from strom.server.background.group_commit import GroupCommit
from strom.server.background.sync_once import durable
from strom.server.calls.bucket_errors import refused
from strom.server.calls.dispatch import CallHandler
from strom.server.calls.writes import TIMEOUT_S_MAX
from strom.server.remote.remote_logs import RemoteLogs
from strom.server.tablets.catalog_view import CatalogView
from strom.server.tablets.copy_role import CopyRole
from strom.server.tablets.tablet_slot import TabletSlot
from strom.server.tablets.tablets import Tablets, wait_for
from strom.server.tablets.waiting import reached
from strom.tablet.lake_check import check_lake
from strom.tablet.tablet import Tablet


class SnapshotCalls:
    """Answers in the coordinator's process."""

    def __init__(self, view: CatalogView, rollout: DecisionRollout) -> None:
        self._view = view
        self._rollout = rollout

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {SNAPSHOT: self.snapshot}

    def snapshot(self, call: Call) -> Message:
        """The number of the newest decision, and the buckets that may not have applied theirs."""
        request: SnapshotRequest = call.request
        catalog = self._view.catalog
        wanted = set(request.table_ids)
        pending: dict[BucketId, int] = {}
        for row in catalog.sinks.values():
            for bucket in self._rollout.pending(catalog, row):
                if not wanted or bucket.table_id in wanted:
                    pending[bucket] = max(row.number, pending.get(bucket, 0))
        return SnapshotResponse(
            number=catalog.last_decision,
            pending=[
                PendingBucket(
                    table_id=bucket.table_id,
                    partition_id=bucket.partition_id,
                    bucket_id=bucket.bucket,
                    number=number,
                )
                for bucket, number in pending.items()
            ],
        )


class CutCalls:
    """Answers for the buckets of this server."""

    def __init__(self, tablets: Tablets, commit: GroupCommit, remote: RemoteLogs | None = None) -> None:
        self._tablets = tablets
        self._remote = remote
        self._commit = commit

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {CUT_BUCKETS: self.cut_buckets}

    async def cut_buckets(self, call: Call) -> Message:
        """Where reads planned at a number start and end, once what was decided before is visible."""
        request: CutBucketsRequest = call.request
        until = asyncio.get_running_loop().time() + min(max(request.timeout_ms, 1) / 1000, TIMEOUT_S_MAX)
        answers = await asyncio.gather(*(self._cut(request, one, until) for one in request.buckets_req))
        return CutBucketsResponse(buckets_resp=answers)

    async def _cut(
        self, request: CutBucketsRequest, wanted: CutBucketRequest, until: float
    ) -> CutBucketResponse:
        try:
            slot = self._tablets.slot(BucketId(request.table_id, wanted.partition_id, wanted.bucket_id))
            tablet = await self._having(slot, wanted.at_least or 0, until)
            if self._remote is not None:
                await self._remote.known(tablet)
            sync = bool(request.sync)
            return await self.cut_tablet(tablet, wanted, number=request.number, sync=sync, role=slot.role)
        except Exception as error:
            return refused(CutBucketResponse, wanted, error)

    async def _having(self, slot: TabletSlot, number: int, until: float) -> Tablet:
        """The tablet, once it has applied a decision."""
        tablet = await wait_for(slot.opened())
        while tablet.applied < number:
            try:
                async with asyncio.timeout_at(until):
                    await reached(tablet.pending, tablet.high_watermark + 1)
            except TimeoutError:
                raise RequestTimeout(
                    f"bucket {slot.bucket} has applied decision {tablet.applied}, and {number} is not yet visible"
                ) from None
            tablet = await wait_for(slot.opened())
        return tablet

    async def cut_tablet(
        self,
        tablet: Tablet,
        wanted: CutBucketRequest,
        *,
        number: int | None,
        sync: bool,
        role: CopyRole | None = None,
    ) -> CutBucketResponse:
        """The answer for one bucket."""
        grouped = tablet.has_stages or tablet.log.groups.newest > 0
        cut = tablet.cut(number)
        if wanted.lake_offset is not None:
            check_lake(tablet, wanted.lake_offset, wanted.lake_epoch)
        end = cut.end_offset
        if wanted.at_most is not None and not grouped and not tablet.has_keys:
            # Anywhere in the log; a change of a key, or a group, is two or more records that belong together.
            end = max(cut.start_offset, min(end, wanted.at_most))
        if sync and role is not None:
            end = max(cut.start_offset, min(end, role.stable))  # R23
        elif sync and tablet.log.synced_end < end:
            await durable(tablet, self._commit)
        return CutBucketResponse(
            partition_id=wanted.partition_id,
            bucket_id=wanted.bucket_id,
            offset=end,
            start_offset=cut.start_offset,
            epoch=tablet.epoch_before(end),
            grouped=grouped,
            damaged=bool(tablet.log.damage) or None,
        )
