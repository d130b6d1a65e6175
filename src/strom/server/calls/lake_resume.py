"""ResumeBucket: a bucket of a log table that lost its end goes on where the lake ends.

Only where the cluster's own record says that the lake holds more than the log: nobody empties a log by asking. What the
log held is in the lake, which has more; so nothing is lost that was not lost before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Any

from strom.errors import InvalidRequest, LeaderNotAvailable, NotPrimaryKeyTable
from strom.log.resuming import resume_at
from strom.model.bucket import BucketId
from strom.model.lake import Tiered
from strom.protocol.api_keys import RESUME_BUCKET, Api
from strom.protocol.error_codes import code_of, message_of
from strom.protocol.message import Message
from strom.protocol.messages import lake as messages
from strom.rpc.call import Call
from strom.runtime.files import Files
from strom.server.calls.dispatch import CallHandler
from strom.server.calls.writes import as_told
from strom.server.catalog_view import CatalogView
from strom.server.lake_places import lake_place
from strom.server.tablets import Tablets, wait_for
from strom.tablet.log_tablet import LogTablet

logger = logging.getLogger(__name__)


class ResumeCalls:
    """Answers for the buckets of this server."""

    def __init__(self, tablets: Tablets, view: CatalogView, files: Files) -> None:
        self._tablets = tablets
        self._view = view
        self._files = files
        self._one_at_a_time = asyncio.Lock()

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {RESUME_BUCKET: self.resume_bucket}

    def resume_bucket(self, call: Call) -> Awaitable[Message]:
        """Let a bucket go on at an offset; done already, it is said again."""
        return self._answer(call.request)

    async def _answer(self, request: messages.ResumeBucketRequest) -> Message:
        try:
            bucket = BucketId(request.table_id, request.partition_id, request.bucket_id)
            async with self._one_at_a_time:
                tablet = await self._resumed(bucket, Tiered(request.offset, request.epoch))
        except Exception as error:
            told = as_told(error)
            return messages.ResumeBucketResponse(error_code=code_of(told), error_message=message_of(told))
        return messages.ResumeBucketResponse(offset=tablet.end_offset, epoch=tablet.log.epoch)

    async def _resumed(self, bucket: BucketId, place: Tiered) -> LogTablet:
        slot = self._tablets.slot(bucket)
        tablet = await wait_for(slot.opened())
        if tablet.has_keys:
            raise NotPrimaryKeyTable(
                f"bucket {bucket} has a primary key: the rows of its keys cannot be found again from an offset alone"
            )
        known = lake_place(self._view.fresh(), bucket)
        if known != place:
            raise InvalidRequest(
                f"the lake is said to hold bucket {bucket} up to {place}, the cluster's record says {known}: report "
                "what the lake holds first"
            )
        if tablet.end_offset < place.offset:
            end = tablet.end_offset
            folder = self._tablets.folder_of(bucket)
            away = LeaderNotAvailable(
                f"bucket {bucket} is about to go on at offset {place.offset}: try again"
            )
            await slot.reopen(
                away,
                lambda: resume_at(self._files, folder, end=end, offset=place.offset, epoch=place.epoch),
            )
            logger.warning(
                "bucket %s ended at %d, the lake holds it up to %d: it goes on there",
                bucket,
                end,
                place.offset,
            )
            tablet = await wait_for(slot.opened())
        tablet.check_writable()
        return tablet
