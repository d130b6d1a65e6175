"""ResumeBucket: a bucket that lost its end goes on where the lake ends.

Only where the cluster's own record says that the lake holds more than the log: a mere request must not empty a log.
What the log held is in the lake, which has more; so nothing is lost that was not lost before. A bucket of a primary-key
table needs its rows too: the reader of the lake sends them, and a store is built from them (tablet/key_restore.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from strom.errors import InvalidRequest, LeaderNotAvailable, NotPrimaryKeyTable, StaleEpoch
from strom.log.layout import NO_EPOCH
from strom.log.resuming import resume_at
from strom.model.bucket import BucketId
from strom.model.lake.lake import Tiered
from strom.protocol.api_keys import RESUME_BUCKET, Api
from strom.protocol.message import Message, whole
from strom.protocol.messages import lake as messages
from strom.record.batch import BatchLimits
from strom.rpc.call import Call
from strom.runtime.files import Files
from strom.server.calls.bucket_errors import error_fields
from strom.server.calls.dispatch import CallHandler
from strom.server.tablets.catalog_view import CatalogView
from strom.server.tablets.lake_places import lake_place
from strom.server.tablets.table_facts import Tables
from strom.server.tablets.tablet_slot import TabletSlot, in_lane
from strom.server.tablets.tablets import Tablets, wait_for
from strom.tablet.tablet import Tablet

if TYPE_CHECKING:
    from strom.tablet.key_restore import KeyRestore

RESTORES_MAX = 8
"""Buckets that are restored at once."""

logger = logging.getLogger(__name__)


class ResumeCalls:
    """Answers for the buckets of this server."""

    def __init__(
        self, tablets: Tablets, view: CatalogView, tables: Tables, files: Files, limits: BatchLimits
    ) -> None:
        self._tablets = tablets
        self._tables = tables
        self._limits = limits
        self._view = view
        self._files = files
        self._one_at_a_time = asyncio.Lock()
        self._restores: dict[BucketId, KeyRestore] = {}
        """Restores of primary-key buckets under way."""

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {RESUME_BUCKET: self.resume_bucket}

    async def resume_bucket(self, call: Call) -> Message:
        """Let a bucket go on at an offset; repeating the call is fine."""
        request: messages.ResumeBucketRequest = call.request
        try:
            bucket = BucketId(request.table_id, request.partition_id, request.bucket_id)
            place = Tiered(request.offset, request.epoch)
            if self._tablets.slot(bucket).role is not None:
                raise InvalidRequest(
                    f"bucket {bucket} has copies on several servers: one of them is elected, none goes on by itself"
                )
            async with self._one_at_a_time:
                if request.part is not None:
                    found = await self._restored(bucket, place, request)
                    if found is None:
                        return messages.ResumeBucketResponse()
                    tablet = found
                else:
                    tablet = await self._resumed(bucket, place)
        except Exception as error:
            return messages.ResumeBucketResponse(**error_fields(error))
        return messages.ResumeBucketResponse(offset=tablet.end_offset, epoch=tablet.log.epoch)

    async def _resumed(self, bucket: BucketId, place: Tiered) -> Tablet:
        slot = self._tablets.slot(bucket)
        tablet = await wait_for(slot.opened())
        if tablet.has_keys:
            raise NotPrimaryKeyTable(
                f"bucket {bucket} has a primary key: its rows cannot be restored from an offset alone"
            )
        self._check_place(bucket, place)
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

    def _check_place(self, bucket: BucketId, place: Tiered) -> None:
        known = lake_place(self._view.fresh(), bucket)
        if known != place:
            raise InvalidRequest(
                f"this call says that the lake holds bucket {bucket} up to {place}, the cluster's record says {known}: "
                "report what the lake holds first"
            )

    # --- primary-key buckets -----------------------------------------------------------------------------------

    async def _restored(
        self, bucket: BucketId, place: Tiered, request: messages.ResumeBucketRequest
    ) -> Tablet | None:
        """Take one more piece of a bucket's rows; returns the end of the bucket after the last piece."""
        slot = self._tablets.slot(bucket)
        tablet = await wait_for(slot.opened())
        self._check_place(bucket, place)
        if not tablet.has_keys:
            raise InvalidRequest(f"bucket {bucket} belongs to a log table: it goes on without rows")
        if tablet.end_offset >= place.offset:
            tablet.check_writable()
            return tablet  # it was done before
        _check_not_gone_on(tablet, place)
        restore = await self._restore_of(slot, place, request.part or 0)
        content = whole(request.records or b"")
        try:
            await in_lane(slot, lambda _: restore.add(content))
            if not request.last:
                return None
            await in_lane(slot, lambda _: restore.finish())
        except BaseException:
            del self._restores[bucket]
            raise
        del self._restores[bucket]
        end = tablet.end_offset
        away = LeaderNotAvailable(f"bucket {bucket} is about to go on at offset {place.offset}: try again")
        await slot.reopen(away, lambda: None)  # opening it puts the restored store in its place
        tablet = await wait_for(slot.opened())
        logger.warning(
            "bucket %s ended at %d and was restored from the lake: %d rows as of offset %d. Changes after that which "
            "were not in the lake are lost",
            bucket,
            end,
            restore.rows,
            place.offset,
        )
        tablet.check_writable()
        return tablet

    async def _restore_of(self, slot: TabletSlot, place: Tiered, part: int) -> KeyRestore:
        from strom.tablet.key_restore import KeyRestore  # primary-key code is loaded where it is used

        bucket = slot.bucket
        if part == 0:
            definition = self._tables.of(bucket.table_id).keys.definition
            folder = self._tablets.folder_of(bucket)
            while len(self._restores) >= RESTORES_MAX:
                self._restores.pop(next(iter(self._restores)))  # the sender went away, or starts again
            self._restores[bucket] = await in_lane(
                slot, lambda _: KeyRestore(self._files, folder, definition, place, self._limits)
            )
        restore = self._restores.get(bucket)
        if restore is None or restore.parts != part or restore.place != place:
            self._restores.pop(bucket, None)
            raise InvalidRequest(
                f"piece {part} of the rows of bucket {bucket} is not the next one: start again"
            )
        return restore


def _check_not_gone_on(tablet: Tablet, place: Tiered) -> None:
    """Refuse a bucket that took writes since its loss: neither the lake nor a restored bucket would have them."""
    newest = tablet.epoch_before(tablet.end_offset) if tablet.end_offset else NO_EPOCH
    if newest > place.epoch or newest == tablet.log.epoch:
        raise StaleEpoch(
            f"bucket {tablet.bucket} took writes after it had lost what the lake holds up to offset {place.offset}: "
            'restored from the lake it would lose them. Save what tier="hot" and tier="lake" have, then give up one '
            "of them: the lake's rows with `strom lake drop`, or the table or partition as it is by dropping it",
            bucket=str(tablet.bucket),
            epoch=place.epoch,
            newest=newest,
        )
