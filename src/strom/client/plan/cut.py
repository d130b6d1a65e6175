"""Where reads end so that they hold whole decisions: all rows of a transaction in every bucket and table, or none.

The buckets tell where they end, and whether they ever had to do with stages; where none had, that is the plan.
Otherwise the coordinator tells the number N of the newest decision and where it may not be applied yet; each
bucket waits for that and is cut at its first group above N.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.retry import MISPLACED
from strom.errors import Expired, InvalidRequest, StromError, UnsupportedVersion
from strom.model.bucket import BucketId
from strom.model.lake.lake import Tiered
from strom.protocol.api_keys import CUT_BUCKETS, SNAPSHOT
from strom.protocol.error_codes import error_of
from strom.protocol.messages import cut as wire

REQUESTS_AT_ONCE = 64
WAIT_MS = 20_000
"""How long a bucket is waited for before it is asked again."""
TRIES = 5


class Cut(NamedTuple):
    """What of a bucket a planned read sees: offsets [start, end); ``epoch`` is that of the record before the end."""

    start: int
    end: int
    epoch: int | None
    grouped: bool


Vector = Mapping[BucketId, Cut]


@dataclass(frozen=True)
class CutTerms:
    """What else is asked of the buckets.

    ``sync``: what they tell has to survive power loss. ``known``: how far the asker knows a bucket in the lake; one
    that does not reach so far refuses with LakeAhead, one that has another epoch there with StaleEpoch. ``at_most``:
    where a bucket of a log table is to be cut, unless it has groups.
    """

    sync: bool = False
    known: Mapping[BucketId, Tiered] = field(default_factory=dict)
    at_most: Mapping[BucketId, int] = field(default_factory=dict)


PLAIN = CutTerms()


async def plan_whole(
    cluster: Cluster, tables: Sequence[tuple[TableInfo, Sequence[BucketId]]], terms: CutTerms = PLAIN
) -> Vector:
    """The ends of these buckets at one moment of all their tables."""
    raw = await _cut_all(cluster, tables, None, {}, terms)
    if not any(cut.grouped for cut in raw.values()):
        return raw
    for left in reversed(range(TRIES)):
        request = wire.SnapshotRequest(table_ids=[table.table_id for table, _ in tables])
        snapshot = await cluster.ask(SNAPSHOT, request)
        pending = {
            BucketId(one.table_id, one.partition_id, one.bucket_id): one.number for one in snapshot.pending
        }
        try:
            return await _cut_all(cluster, tables, snapshot.number, pending, terms)
        except Expired:
            # So many decisions came meanwhile that a bucket forgot where the first of them lay.
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


async def table_ends(cluster: Cluster, table: TableInfo, buckets: Sequence[BucketId]) -> Vector | None:
    """``plan_whole`` for one table; None where the server knows no stages (a Fluss server)."""
    if not buckets:
        return {}
    try:
        return await plan_whole(cluster, [(table, buckets)])
    except UnsupportedVersion:
        return None


async def _cut_all(
    cluster: Cluster,
    tables: Sequence[tuple[TableInfo, Sequence[BucketId]]],
    number: int | None,
    pending: Mapping[BucketId, int],
    terms: CutTerms,
) -> Vector:
    limit = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def one(table: TableInfo, group: list[BucketId]) -> Vector:
        async with limit:
            return await _Cutting(cluster, table, number, pending, terms).cut(group)

    work = []
    for table, buckets in tables:
        groups: dict[object, list[BucketId]] = {}
        for bucket in buckets:
            groups.setdefault(cluster.metadata.leader(bucket), []).append(bucket)
        work += [one(table, group) for group in groups.values()]
    found: dict[BucketId, Cut] = {}
    for part in await asyncio.gather(*work):
        found.update(part)
    return found


class _Cutting:
    """One question for buckets of one table, which one server leads as far as we know."""

    def __init__(
        self,
        cluster: Cluster,
        table: TableInfo,
        number: int | None,
        pending: Mapping[BucketId, int],
        terms: CutTerms,
    ) -> None:
        self._cluster = cluster
        self._table = table
        self._number = number
        self._pending = pending
        self._terms = terms

    async def cut(self, group: list[BucketId]) -> Vector:
        async def between(error: StromError) -> None:
            if isinstance(error, MISPLACED):
                await self._cluster.refresh(self._table, group)

        return await self._cluster.retrying.run(lambda: self._attempt(group), between=between)

    async def _attempt(self, group: list[BucketId]) -> Vector:
        found: dict[BucketId, Cut] = {}
        by_server: dict[object, list[BucketId]] = {}
        for bucket in group:
            by_server.setdefault(self._cluster.leader(bucket), []).append(bucket)
        for members in by_server.values():
            request = wire.CutBucketsRequest(
                table_id=self._table.table_id,
                number=self._number,
                timeout_ms=WAIT_MS,
                buckets_req=[self._request(bucket) for bucket in members],
                sync=self._terms.sync or None,
            )
            address = self._cluster.leader(members[0])
            response = await self._cluster.call(address, CUT_BUCKETS, request)
            found.update(_read(self._table.table_id, response))
        if any(bucket not in found for bucket in group):
            raise InvalidRequest("the server's answer leaves a bucket out", buckets=group)
        return found

    def _request(self, bucket: BucketId) -> wire.CutBucketRequest:
        known = self._terms.known.get(bucket)
        return wire.CutBucketRequest(
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket,
            at_least=self._pending.get(bucket),
            lake_offset=None if known is None else known.offset,
            lake_epoch=None if known is None else known.epoch,
            at_most=self._terms.at_most.get(bucket),
        )


def _read(table_id: int, response: wire.CutBucketsResponse) -> dict[BucketId, Cut]:
    found = {}
    for answer in response.buckets_resp:
        bucket = BucketId(table_id, answer.partition_id, answer.bucket_id)
        if answer.error_code:
            error = error_of(answer.error_code, answer.error_message)
            error.facts["bucket"] = bucket
            raise error
        end = answer.offset or 0
        found[bucket] = Cut(answer.start_offset or 0, end, answer.epoch, bool(answer.grouped))
    return found
