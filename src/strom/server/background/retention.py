"""Retention: segments that are too old, or too many, are removed; logs that nobody uses are closed.

Each bucket is visited in turn, in its lane, so retention never runs beside an append of the same bucket and never holds
up the loop. A closed log is opened for its visit and closed again. The table decides what may go (``table.log.ttl``,
``table.log.retention-bytes``); of a log table in the lake, only what the lake holds.

With an object store, segments go earlier from this disk (``table.log.local-ttl``): those that were read back from there
(C8). Only the leader of a bucket reads them back; copies that follow keep theirs as long as the table keeps its rows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from strom.errors import KernelsCompiling, StromError
from strom.model import properties
from strom.model.bucket import BucketId
from strom.runtime.clock import Clock
from strom.server.tablets.catalog_view import CatalogView
from strom.server.tablets.key_forms import key_tablet
from strom.server.tablets.lake_places import log_needed_from
from strom.server.tablets.table_facts import Tables
from strom.server.tablets.tablet_slot import TabletSlot, in_lane
from strom.server.tablets.tablets import Tablets
from strom.tablet.tablet import Tablet

CLOSE_IDLE_EVERY_S = 60.0

logger = logging.getLogger(__name__)


class UploadedLogs(Protocol):
    """The object store, as retention sees it."""

    async def proven(self, tablet: Tablet, up_to: int) -> int:
        """Up to where it was read back that the store has a bucket's rows; ``up_to``: further is not asked for."""


class Retention:
    """Expires segments of every bucket of this server."""

    def __init__(
        self,
        tablets: Tablets,
        tables: Tables,
        view: CatalogView,
        clock: Clock,
        *,
        every_ms: int,
        uploaded: UploadedLogs | None = None,
    ) -> None:
        self._uploaded = uploaded
        self._tablets = tablets
        self._tables = tables
        self._view = view
        self._clock = clock
        self._every_s = every_ms / 1000

    async def run(self) -> None:
        """Run forever."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.round()

    async def close_idle(self) -> None:
        """Close unused logs, forever."""
        while True:
            await asyncio.sleep(CLOSE_IDLE_EVERY_S)
            await self._tablets.close_idle()

    async def round(self) -> int:
        """Visit every bucket once; returns the bytes removed."""
        removed = 0
        for bucket in self._tablets.held(self._view.catalog):
            try:
                removed += await self._visit(bucket)
            except KernelsCompiling:
                continue
            except (StromError, OSError) as error:
                # Dropped meanwhile, offline, or a disk error: the next round tries again.
                logger.warning("retention of bucket %s: %s", bucket, error)
        return removed

    async def _visit(self, bucket: BucketId) -> int:
        facts = self._tables.of(bucket.table_id)
        wanted = facts.table.description.properties
        ttl_ms, bytes_max = properties.log_ttl_ms(wanted), properties.log_retention_bytes(wanted)
        has_keys = bool(facts.table.schema.primary_key)
        # The rows of a primary-key table stay in any case; the lake does not need its expired changelog.
        needed = None if has_keys else log_needed_from(self._view.catalog, bucket)
        now_ms = self._clock.now_ms()

        def expire(tablet: Tablet) -> int:
            tablet.check_online()
            tablet.log.roll_if_due(now_ms)
            if has_keys:  # rows that are still needed lie in files that a manifest has to name first
                expired = key_tablet(tablet).expire(now_ms=now_ms, ttl_ms=ttl_ms, bytes_max=bytes_max)
            else:
                tablet.drop_overwritten()
                expired = tablet.log.expire(
                    now_ms=now_ms, ttl_ms=ttl_ms, bytes_max=bytes_max, keep_from=tablet.droppable(needed)
                )
            tablet.log.mend()
            return expired.bytes

        slot = self._tablets.copy(bucket)
        was_open = slot.tablet is not None
        if not was_open and slot.empty:
            return 0
        result = slot.do(expire, small=False, any_role=True)
        removed = await result if isinstance(result, asyncio.Future) else result
        if self._uploaded is not None and (slot.role is None or slot.role.leads):
            removed += await self._drop_uploaded(self._uploaded, slot, wanted)
        tablet = slot.tablet
        if not was_open and tablet is not None and slot.quiet:
            empty = tablet.log.size_bytes == 0
            await slot.close()  # there may be thousands, and each open log holds files
            slot.empty = empty and slot.tablet is None and slot.quiet
        return removed

    async def _drop_uploaded(
        self, uploaded: UploadedLogs, slot: TabletSlot, wanted: Mapping[str, str]
    ) -> int:
        """Remove segments that were read back from the object store; the bytes removed."""
        now_ms = self._clock.now_ms()
        tablet = slot.tablet
        if tablet is None or not tablet.online or not tablet.leading:
            return 0
        surplus = tablet.log.surplus(
            now_ms=now_ms,
            ttl_ms=properties.log_local_ttl_ms(wanted),
            keep_from=tablet.expendable(now_ms),
            segments_min=properties.log_local_segments(wanted),
        )
        if surplus <= tablet.log.start_offset:
            return 0
        proven = await uploaded.proven(tablet, surplus)

        def drop(now: Tablet) -> int:
            if now is not tablet or not now.leading:
                return 0  # it was opened anew, or another server leads: the next round asks again
            before = now.log.size_bytes
            now.log.drop_before(min(surplus, proven, now.expendable(now_ms)))
            return before - now.log.size_bytes

        return await in_lane(slot, drop)
