"""MarkDamage: an operator gives up unreadable offsets of a bucket; and the error that tells a reader about it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from strom.errors import InvalidRequest, StromError
from strom.log.damage import Damage
from strom.model.bucket import BucketId
from strom.model.damage import unreadable
from strom.protocol.api_keys import MARK_DAMAGE, Api
from strom.protocol.message import Message
from strom.protocol.messages.damage import DamageMark, MarkDamageRequest, MarkDamageResponse
from strom.rpc.call import Call
from strom.runtime.clock import Clock
from strom.server.calls.bucket_errors import error_fields
from strom.server.calls.dispatch import CallHandler
from strom.server.tablets.table_facts import TableFacts, Tables
from strom.server.tablets.tablet_slot import in_lane
from strom.server.tablets.tablets import Tablets
from strom.tablet.tablet import Tablet

logger = logging.getLogger(__name__)


class DamageCalls:
    """Answers for the buckets of this server."""

    def __init__(self, tablets: Tablets, tables: Tables, clock: Clock) -> None:
        self._tablets = tablets
        self._tables = tables
        self._clock = clock

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {MARK_DAMAGE: self.mark_damage}

    async def mark_damage(self, call: Call) -> Message:
        """Give offsets up, take that back, or list what is given up."""
        try:
            damage = await self._marked(call.request)
        except Exception as error:
            return MarkDamageResponse(**error_fields(error))
        return MarkDamageResponse(
            marks=[
                DamageMark(start_offset=mark.start, end_offset=mark.end, marked_ms=mark.marked_ms)
                for mark in damage.marks
            ]
        )

    async def _marked(self, request: MarkDamageRequest) -> Damage:
        bucket = BucketId(request.table_id, request.partition_id, request.bucket_id)
        facts = self._tables.of(request.table_id)
        start, end = request.start_offset, request.end_offset
        if (start is None) != (end is None):
            raise InvalidRequest("a mark has a first offset and an end")
        schema_id = facts.table.schema.schema_id

        def job(tablet: Tablet) -> Damage:
            tablet.check_online()
            if start is not None and end is not None:
                tablet.mark_damaged(
                    start,
                    end,
                    schema_id=schema_id,
                    take_back=bool(request.take_back),
                    now_ms=self._clock.now_ms(),
                )
            return tablet.log.damage

        damage = await in_lane(self._tablets.slot(bucket), job)
        if start is not None:
            logger.warning(
                "%s bucket %s: offsets %s to %s %s damaged; %d offsets of it are left out of every read",
                facts.table.path,
                bucket,
                start,
                end,
                "are no longer marked as" if request.take_back else "are marked as",
                damage.rows,
            )
        return damage


def unreadable_error(facts: TableFacts, tablet: Tablet, offset: int, error: StromError) -> StromError:
    """The error of a read that met unreadable bytes, with the place and what to do about it."""
    first, last = error.facts.get("first_offset"), error.facts.get("end_offset")
    if not isinstance(first, int) or not isinstance(last, int):
        first, last = tablet.log.batch_around(offset)
    path, bucket = facts.table.path, tablet.bucket
    return type(error)(
        unreadable(str(path), bucket.bucket, bucket.partition_id, first, last, error.message),
        table=str(path),
        bucket=str(bucket),
        first_offset=first,
        end_offset=last,
    )
