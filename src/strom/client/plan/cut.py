"""The cut: where planned reads begin and end in every bucket, so that they hold whole decisions only.

All rows of a transaction are before the cut, in every bucket and table, or none are. The buckets say where they end,
and whether they ever saw a *stage*; where none did, that is the cut. Otherwise the coordinator says the number N of the
newest decision and where it may not be applied yet; each bucket waits for that and is cut at its first group above N.

``cut_tables`` and ``cut_table`` ask on the loop, with retries; ``cut_now`` asks once, in the caller's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from strom.client.cluster.address import Address
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.direct_caller import DirectCaller
from strom.client.cluster.metadata import TableInfo
from strom.errors import Expired, InvalidRequest, UnsupportedVersion
from strom.model.bucket import BucketId
from strom.model.lake.lake import Tiered
from strom.protocol.api_keys import CUT_BUCKETS, SNAPSHOT
from strom.protocol.error_codes import error_of
from strom.protocol.messages import cut as wire

REQUESTS_AT_ONCE = 64
WAIT_MS = 20_000
"""How long a server may wait for a bucket before it is asked again."""
TRIES = 5


class Cut(NamedTuple):
    """What a planned read sees of a bucket: offsets [start, end); ``epoch`` is that of the record before the end."""

    start: int
    end: int
    epoch: int | None
    grouped: bool
    """Whether the bucket ever saw a stage."""
    damaged: bool = False
    """Whether offsets of the bucket are marked as damaged, so that it has fewer rows than offsets."""


Cuts = Mapping[BucketId, Cut]


@dataclass(frozen=True)
class CutTerms:
    """Further demands on a cut.

    ``sync``: it has to survive power loss. ``known``: how far the caller knows a bucket in the lake; a bucket that does
    not reach that far refuses with LakeAhead, one with another epoch there with StaleEpoch. ``at_most``: where to cut a
    bucket of a log table that has no groups.
    """

    sync: bool = False
    known: Mapping[BucketId, Tiered] = field(default_factory=dict)
    at_most: Mapping[BucketId, int] = field(default_factory=dict)


PLAIN = CutTerms()


async def cut_tables(
    cluster: Cluster, tables: Sequence[tuple[TableInfo, Sequence[BucketId]]], terms: CutTerms = PLAIN
) -> Cuts:
    """The cut of these buckets at one moment of all their tables."""
    raw = await _cut_all(cluster, tables, None, {}, terms)
    if not _grouped(raw):
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


async def cut_table(cluster: Cluster, table: TableInfo, buckets: Sequence[BucketId]) -> Cuts | None:
    """The cut of one table; None where the server knows no stages (a Fluss server)."""
    if not buckets:
        return {}
    try:
        return await cut_tables(cluster, [(table, buckets)])
    except UnsupportedVersion:
        return None


def cut_now(cluster: Cluster, table: TableInfo, buckets: Sequence[BucketId]) -> Cuts | None:
    """The cut of buckets that one server leads, requested by this thread; None where only the loop can go on."""
    leaders = {cluster.metadata.leader(bucket) for bucket in buckets}
    leader = leaders.pop() if len(leaders) == 1 else None
    if leader is None or cluster.direct is None:
        return None
    question = _CutQuestion(cluster, table, None, {}, PLAIN)
    cuts = cluster.direct.attempt((leader,), lambda caller: question.ask_now(caller, buckets))
    return None if cuts is None or _grouped(cuts) else cuts


async def extent_now(cluster: Cluster, table: TableInfo, buckets: Sequence[BucketId]) -> Cuts | None:
    """Where each bucket begins and ends now, whole decisions or not; None where the server knows no cuts."""
    try:
        return await _cut_all(cluster, [(table, buckets)], None, {}, PLAIN)
    except UnsupportedVersion:
        return None


def starts_and_ends(cuts: Cuts) -> tuple[dict[BucketId, int], dict[BucketId, int]]:
    """Where each bucket begins, and where it is cut."""
    starts = {bucket: cut.start for bucket, cut in cuts.items()}
    return starts, {bucket: cut.end for bucket, cut in cuts.items()}


def damaged_of(cuts: Cuts) -> set[BucketId]:
    """The buckets with marks of damage."""
    return {bucket for bucket, cut in cuts.items() if cut.damaged}


def epochs_of(cuts: Cuts) -> dict[BucketId, int]:
    """Of the record before each cut, where that is known."""
    return {bucket: cut.epoch for bucket, cut in cuts.items() if cut.epoch is not None}


def _grouped(cuts: Cuts) -> bool:
    return any(cut.grouped for cut in cuts.values())


async def _cut_all(
    cluster: Cluster,
    tables: Sequence[tuple[TableInfo, Sequence[BucketId]]],
    number: int | None,
    pending: Mapping[BucketId, int],
    terms: CutTerms,
) -> Cuts:
    limit = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def one(question: _CutQuestion, group: list[BucketId]) -> Cuts:
        async with limit:
            return await question.ask(group)

    work: list[Awaitable[Cuts]] = []
    for table, buckets in tables:
        question = _CutQuestion(cluster, table, number, pending, terms)
        groups: dict[Address | None, list[BucketId]] = {}
        for bucket in buckets:
            groups.setdefault(cluster.metadata.leader(bucket), []).append(bucket)
        work += [one(question, group) for group in groups.values()]
    found: dict[BucketId, Cut] = {}
    for part in await asyncio.gather(*work):
        found.update(part)
    return found


class _CutQuestion:
    """Asks servers to cut buckets of one table."""

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

    async def ask(self, group: Sequence[BucketId]) -> Cuts:
        """The cuts of buckets that one server leads as far as we know; retries while errors pass."""
        return await self._cluster.at_leaders(self._table, group, lambda: self._attempt(group))

    async def _attempt(self, group: Sequence[BucketId]) -> Cuts:
        found: dict[BucketId, Cut] = {}
        by_server: dict[Address, list[BucketId]] = {}
        for bucket in group:
            by_server.setdefault(self._cluster.leader(bucket), []).append(bucket)
        for address, members in by_server.items():
            answer = await self._cluster.call(address, CUT_BUCKETS, self._request(members))
            found |= self._read(answer, members)
        return found

    def ask_now(self, caller: DirectCaller, group: Sequence[BucketId]) -> Cuts:
        """The same once, on this thread's connection."""
        timeout_s = self._cluster.options.request_timeout_ms / 1000
        return self._read(caller.call(CUT_BUCKETS, self._request(group), timeout_s=timeout_s), group)

    def _request(self, buckets: Sequence[BucketId]) -> wire.CutBucketsRequest:
        return wire.CutBucketsRequest(
            table_id=self._table.table_id,
            number=self._number,
            timeout_ms=WAIT_MS,
            buckets_req=[self._bucket_request(bucket) for bucket in buckets],
            sync=self._terms.sync or None,
        )

    def _bucket_request(self, bucket: BucketId) -> wire.CutBucketRequest:
        known = self._terms.known.get(bucket)
        return wire.CutBucketRequest(
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket,
            at_least=self._pending.get(bucket),
            lake_offset=None if known is None else known.offset,
            lake_epoch=None if known is None else known.epoch,
            at_most=self._terms.at_most.get(bucket),
        )

    def _read(self, answer: wire.CutBucketsResponse, wanted: Sequence[BucketId]) -> dict[BucketId, Cut]:
        found = {}
        for one in answer.buckets_resp:
            bucket = BucketId(self._table.table_id, one.partition_id, one.bucket_id)
            if one.error_code:
                error = error_of(one.error_code, one.error_message)
                error.facts["bucket"] = bucket
                raise error
            found[bucket] = Cut(
                one.start_offset or 0, one.offset or 0, one.epoch, bool(one.grouped), bool(one.damaged)
            )
        if any(bucket not in found for bucket in wanted):
            raise InvalidRequest("the server's answer leaves a bucket out", buckets=list(wanted))
        return found
