"""Frees stages that nobody will publish: their lease has expired, and no decision lists them.

A tablet's clock only says when to ask. The coordinator alone knows whether a stage may go: it first makes sure that
nobody can list the stage any more, then checks whether a decision has. Stages that were never sealed cannot be listed,
and are freed without asking.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from strom.errors import StromError
from strom.model.bucket import BucketId
from strom.protocol.messages.stages import ExpireStagesRequest, ExpireStagesResponse, WireLateStage
from strom.runtime.clock import Clock
from strom.runtime.metrics import Metrics
from strom.server.tablets.tablet_slot import TabletSlot, in_lane
from strom.server.tablets.tablets import Tablets
from strom.tablet.tablet import Tablet

ASKED_MAX = 1000
"""Stages per request; the next round asks about the rest."""

Ask = Callable[[ExpireStagesRequest], Awaitable[ExpireStagesResponse]]

logger = logging.getLogger(__name__)


class StageExpiry:
    """Frees the stages of every bucket of this server."""

    def __init__(self, tablets: Tablets, clock: Clock, metrics: Metrics, *, every_ms: int) -> None:
        self._tablets = tablets
        self._clock = clock
        self._every_s = every_ms / 1000
        self._expired = metrics.counter("strom_stages_expired_total", "Stages freed after their lease")
        self.ask: Ask | None = None
        """Asks the coordinator; while it is None, nothing is freed."""
        metrics.gauge("strom_stages", "Stages that are not published").follow(
            lambda: sum(len(tablet.stages) for tablet in _opened(tablets))
        )
        metrics.gauge("strom_stage_bytes", "Bytes of stages that are not published").follow(
            lambda: sum(tablet.stages.bytes for tablet in _opened(tablets))
        )
        metrics.gauge("strom_stages_damaged", "Sealed stages that cannot be read").follow(
            lambda: sum(tablet.stages.damaged for tablet in _opened(tablets))
        )

    async def run(self) -> None:
        """Run forever."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.round()

    async def given_up(self, bucket: BucketId, stage_ids: Sequence[bytes]) -> set[bytes]:
        """Of sealed stages that their writer gave up: those that no decision lists."""
        if self.ask is None:
            return set()
        request = ExpireStagesRequest(
            table_id=bucket.table_id,
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket,
            now_ms=self._clock.now_ms(),
            stages=[WireLateStage(stage_id=one, sink="", epoch=0, deadline_ms=0) for one in stage_ids],
            given_up=True,
        )
        answer = await self.ask(request)
        return {bytes(one) for one in answer.free} & set(stage_ids)

    async def round(self) -> int:
        """Visit every bucket that has stages; returns how many were freed."""
        freed = 0
        for slot in self._tablets:
            if slot.tablet is None or not len(slot.tablet.stages):
                continue
            if slot.role is not None and not slot.role.leads:
                continue  # its leader frees them
            try:
                freed += await self._visit(slot)
            except (StromError, OSError) as error:
                logger.warning("stages of bucket %s: %s", slot.bucket, error)
        return freed

    async def _visit(self, slot: TabletSlot) -> int:
        now_ms = self._clock.now_ms()
        late = (await in_lane(slot, lambda tablet: tablet.late_stages(now_ms)))[:ASKED_MAX]
        if not late or self.ask is None:
            return 0
        request = ExpireStagesRequest(
            table_id=slot.bucket.table_id,
            partition_id=slot.bucket.partition_id,
            bucket_id=slot.bucket.bucket,
            now_ms=now_ms,
            stages=[
                WireLateStage(
                    stage_id=one.stage_id, sink=one.sink, epoch=one.epoch, deadline_ms=one.deadline_ms
                )
                for one in late
            ],
        )
        answer = await self.ask(request)
        # Only what was asked about, whatever the answer says.
        free = {bytes(one) for one in answer.free} & {one.stage_id for one in late}
        freed = await in_lane(slot, lambda tablet: tablet.drop_stages(free)) if free else 0
        self._expired.inc(freed)
        return freed


def _opened(tablets: Tablets) -> list[Tablet]:
    return [slot.tablet for slot in tablets if slot.tablet is not None]
