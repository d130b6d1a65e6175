"""Leaders for buckets none of whose in-sync copies is what it was (R10): under ``os``, after a power loss of all.

Every member that still has its disk is asked what its copy holds; when all have answered, the one with most leads, and
the loss is declared. One that is not there is waited for: it may hold more. Where rows were promised to be on the disks
(``group``), or all disks are gone, nothing is decided here: that is for a person.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence

from strom.coordinator import commands
from strom.coordinator.catalog import Catalog
from strom.coordinator.new_copies import promise_of
from strom.errors import StromError
from strom.model.bucket import BucketId
from strom.protocol.api_keys import POSITION
from strom.protocol.messages.replication import PositionRequest, WireBucket, WirePosition
from strom.replication.elections import FoundCopy, sound_members
from strom.replication.member import CopyPromise, identity_of
from strom.runtime.clock import Clock
from strom.server.links.server_links import ServerLinks
from strom.server.tablets.catalog_view import TermView

BUCKETS_AT_ONCE = 200
ASK_S = 30.0
"""A copy may have to be opened, and recovered, before it can say what it holds."""

logger = logging.getLogger(__name__)


class PowerRecovery:
    """For one term."""

    def __init__(self, view: TermView, links: ServerLinks, clock: Clock) -> None:
        self._view = view
        self._links = links
        self._clock = clock

    async def recover(self, leaderless: Sequence[BucketId], alive: Collection[int]) -> int:
        """Look at buckets that nobody could be elected for; returns how many have a leader now."""
        catalog = self._view.catalog
        lost = [one for one in leaderless if _is_lost(catalog, one)]
        done = 0
        for begin in range(0, len(lost), BUCKETS_AT_ONCE):
            some = lost[begin : begin + BUCKETS_AT_ONCE]
            found = await self.positions(some, alive)
            for bucket in some:
                entry = await self._view.perform(
                    commands.recover, bucket, found.get(bucket, {}), now_ms=self._clock.now_ms()
                )
                if entry is not None:
                    logger.error(
                        "bucket %s: all copies in sync lost power; server %d leads, and what was not synced may be "
                        "lost",
                        bucket,
                        entry.leader,
                    )
                    done += 1
        return done

    async def positions(
        self, buckets: Sequence[BucketId], alive: Collection[int]
    ) -> dict[BucketId, dict[int, FoundCopy]]:
        """What the copies of these buckets hold, of the servers that answer."""
        catalog, wanted = self._view.catalog, dict[int, list[BucketId]]()
        for bucket in buckets:
            entry = catalog.replicas.get(bucket)
            for server_id in () if entry is None else entry.servers:
                if server_id in alive:
                    wanted.setdefault(server_id, []).append(bucket)
        found: dict[BucketId, dict[int, FoundCopy]] = {}
        answers = await asyncio.gather(*(self._positions(*one) for one in wanted.items()))
        for server_id, copies in zip(wanted, answers, strict=True):
            for bucket, copy in copies.items():
                found.setdefault(bucket, {})[server_id] = copy
        return found

    async def _positions(self, server_id: int, buckets: Sequence[BucketId]) -> dict[BucketId, FoundCopy]:
        request = PositionRequest(
            buckets_req=[
                WireBucket(table_id=one.table_id, partition_id=one.partition_id, bucket_id=one.bucket)
                for one in buckets
            ]
        )
        try:
            answer = await self._links.ask(server_id, POSITION, request, ASK_S)
        except StromError as error:
            logger.warning("tablet server %s does not say what its copies hold: %s", server_id, error)
            return {}
        found = {}
        for one in answer.positions:
            bucket = BucketId(one.table_id, one.partition_id, one.bucket_id)
            promise = _promise(self._view.catalog, bucket)
            if promise is not None and not one.error_code:
                found[bucket] = _copy(one, answer.incarnation, promise)
        return found


def _copy(found: WirePosition, incarnation: int, promise: CopyPromise) -> FoundCopy:
    identity = identity_of(found.disk or "", found.placement or 0, found.lineage or 0, promise.durability)
    return FoundCopy(incarnation, identity, found.last_epoch or 0, found.end or 0)


def _promise(catalog: Catalog, bucket: BucketId) -> CopyPromise | None:
    table = catalog.table_by_id(bucket.table_id)
    return None if table is None else promise_of(catalog, table.description)


def _is_lost(catalog: Catalog, bucket: BucketId) -> bool:
    """Whether no in-sync copy is what it was, under a promise that allows to go on without."""
    entry, promise = catalog.replicas.get(bucket), _promise(catalog, bucket)
    if entry is None or promise is None or promise.durability != "os":
        return False
    return not sound_members(entry, catalog.registrations, promise)
