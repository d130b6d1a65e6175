"""Where buckets begin and end now, and which offset a time corresponds to."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.log_place import EARLIEST, LATEST, Place, PlaceKind
from strom.errors import InvalidRequest, InvalidTimestamp
from strom.model.bucket import BucketId
from strom.protocol.api_keys import LIST_OFFSETS
from strom.protocol.error_codes import error_of
from strom.protocol.messages.log import ListOffsetsRequest, ListOffsetsResponse

OFFSET_TYPES = {PlaceKind.EARLIEST: 0, PlaceKind.LATEST: 1, PlaceKind.TIME: 2}
NO_FOLLOWER = -1
REQUESTS_AT_ONCE = 64


class Offsets:
    """Asks for offsets in one table's buckets."""

    def __init__(self, cluster: Cluster, table: TableInfo) -> None:
        self._cluster = cluster
        self._table = table

    async def ends(
        self, buckets: Sequence[tuple[BucketId, str | None]]
    ) -> tuple[dict[BucketId, int], dict[BucketId, int]]:
        """Where each bucket begins and ends now."""
        first, last = await asyncio.gather(self.at(EARLIEST, buckets), self.at(LATEST, buckets))
        return first, last

    async def at(self, place: Place, buckets: Sequence[tuple[BucketId, str | None]]) -> dict[BucketId, int]:
        """The offset of a place in each bucket. A bucket left out of an offset mapping starts at its beginning."""
        if place.kind in OFFSET_TYPES:
            return await self._list(place, [bucket for bucket, _ in buckets])
        found: dict[BucketId, int] = {}
        missing = []
        for bucket, partition in buckets:
            offset = place.offset_in(bucket, partition)
            if offset is None:
                missing.append(bucket)
            else:
                found[bucket] = offset
        return found | (await self._list(EARLIEST, missing) if missing else {})

    async def _list(self, place: Place, buckets: Iterable[BucketId]) -> dict[BucketId, int]:
        groups: dict[tuple[object, int | None], list[BucketId]] = {}
        for bucket in buckets:
            leader = self._cluster.metadata.leader(bucket)
            groups.setdefault((leader, bucket.partition_id), []).append(bucket)
        limit = asyncio.Semaphore(REQUESTS_AT_ONCE)

        async def one(group: list[BucketId]) -> dict[BucketId, int]:
            async with limit:
                return await self._list_group(place, group)

        parts = await asyncio.gather(*(one(group) for group in groups.values()))
        return {bucket: offset for part in parts for bucket, offset in part.items()}

    async def _list_group(self, place: Place, group: list[BucketId]) -> dict[BucketId, int]:
        """Buckets of one partition on one server."""
        try:
            return await self._cluster.at_leaders(self._table, group, lambda: self._attempt(place, group))
        except InvalidTimestamp:
            # A time in the future: every row lies before it.
            return await self._list_group(LATEST, group)

    async def _attempt(self, place: Place, group: list[BucketId]) -> dict[BucketId, int]:
        found: dict[BucketId, int] = {}
        # Usually one server leads the whole group; after a move that may have changed.
        by_server: dict[object, list[BucketId]] = {}
        for bucket in group:
            by_server.setdefault(self._cluster.leader(bucket), []).append(bucket)
        for members in by_server.values():
            request = ListOffsetsRequest(
                follower_server_id=NO_FOLLOWER,
                offset_type=OFFSET_TYPES[place.kind],
                table_id=self._table.table_id,
                partition_id=members[0].partition_id,
                bucket_id=[bucket.bucket for bucket in members],
                start_timestamp=place.value if place.kind is PlaceKind.TIME else None,
            )
            response = await self._cluster.call(self._cluster.leader(members[0]), LIST_OFFSETS, request)
            found |= _read(response, members)
        return found


def _read(response: ListOffsetsResponse, members: list[BucketId]) -> dict[BucketId, int]:
    by_bucket = {bucket.bucket: bucket for bucket in members}
    found = {}
    for answer in response.buckets_resp:
        if answer.error_code:
            raise error_of(answer.error_code, answer.error_message)
        if answer.bucket_id in by_bucket and answer.offset is not None:
            found[by_bucket[answer.bucket_id]] = answer.offset
    if len(found) < len(members):
        raise InvalidRequest("the server's answer leaves a bucket out", buckets=members)
    return found
