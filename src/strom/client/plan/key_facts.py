"""Row counts, sizes and indexes of a primary-key table's buckets, asked of their leaders without reading a row."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from strom.client.cluster.address import Address
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.errors import InvalidRequest
from strom.model.bucket import BucketId
from strom.protocol.api_keys import KEY_FACTS
from strom.protocol.error_codes import error_of
from strom.protocol.messages.own_keys import KeyFactsBucketRequest, KeyFactsBucketResponse, KeyFactsRequest

READY = "ready"
BUILDING = "building"


@dataclass(frozen=True)
class IndexStatus:
    """A secondary index. ``state`` is ``ready`` when every bucket has it, else ``building``."""

    name: str
    columns: tuple[str, ...]
    state: str
    rows: int


@dataclass(frozen=True)
class BucketKeys:
    """One bucket: rows, files, memory, and how far back it can be read."""

    bucket: BucketId
    live_rows: int
    stored_rows: int
    """Rows kept, including those that only an older instant needs."""
    high_watermark: int
    epoch: int
    """Of the record before the high watermark."""
    horizon: int
    """The oldest instant that scans can read."""
    series_start: int
    carried: int
    """Everything before this offset is in base files."""
    snapshot_offset: int
    """Where a restart begins."""
    base_files: int
    base_bytes: int
    index_bytes: int
    indexes: tuple[IndexStatus, ...]


@dataclass(frozen=True)
class KeyStatus:
    """The totals of a table."""

    live_rows: int
    stored_rows: int
    base_files: int
    base_bytes: int
    index_bytes: int
    indexes: tuple[IndexStatus, ...]
    buckets: tuple[BucketKeys, ...]

    @classmethod
    def of(cls, buckets: Sequence[BucketKeys]) -> KeyStatus:
        """The sum of the buckets."""
        return cls(
            live_rows=sum(one.live_rows for one in buckets),
            stored_rows=sum(one.stored_rows for one in buckets),
            base_files=sum(one.base_files for one in buckets),
            base_bytes=sum(one.base_bytes for one in buckets),
            index_bytes=sum(one.index_bytes for one in buckets),
            indexes=tuple(indexes_over(buckets).values()),
            buckets=tuple(buckets),
        )

    @property
    def dead_share(self) -> float:
        """The fraction of kept rows that is dead."""
        return 1 - self.live_rows / self.stored_rows if self.stored_rows else 0.0

    @property
    def index_bytes_per_row(self) -> float:
        """Index memory per live row."""
        return self.index_bytes / self.live_rows if self.live_rows else 0.0


def indexes_over(buckets: Sequence[BucketKeys]) -> dict[str, IndexStatus]:
    """The indexes by name; an index is ready when every bucket has it."""
    found: dict[str, IndexStatus] = {}
    for name, columns in {one.name: one.columns for bucket in buckets for one in bucket.indexes}.items():
        known = [one for bucket in buckets for one in bucket.indexes if one.name == name]
        ready = len(known) == len(buckets) and all(one.state == READY for one in known)
        state = READY if ready else BUILDING
        found[name] = IndexStatus(name, columns, state, sum(one.rows for one in known))
    return found


class KeyFacts:
    """Asks for the facts about one table's buckets."""

    def __init__(self, cluster: Cluster, table: TableInfo) -> None:
        self._cluster = cluster
        self._table = table

    async def of(self, buckets: Sequence[BucketId]) -> dict[BucketId, BucketKeys]:
        """The facts about each bucket; retries transient errors."""
        return await self._cluster.at_leaders(self._table, buckets, lambda: self._attempt(buckets))

    async def _attempt(self, buckets: Sequence[BucketId]) -> dict[BucketId, BucketKeys]:
        by_server: dict[Address, list[BucketId]] = {}
        for bucket in buckets:
            by_server.setdefault(self._cluster.leader(bucket), []).append(bucket)
        parts = await asyncio.gather(*(self._ask(address, group) for address, group in by_server.items()))
        return {one.bucket: one for part in parts for one in part}

    async def _ask(self, address: Address, buckets: Sequence[BucketId]) -> list[BucketKeys]:
        request = KeyFactsRequest(
            table_id=self._table.table_id,
            buckets=[
                KeyFactsBucketRequest(partition_id=one.partition_id, bucket_id=one.bucket) for one in buckets
            ],
        )
        response = await self._cluster.call(address, KEY_FACTS, request)
        answers = {(one.partition_id, one.bucket_id): one for one in response.buckets_resp}
        found = []
        for bucket in buckets:
            answer = answers.get(bucket[1:])
            if answer is None:
                raise InvalidRequest("the server's answer leaves a bucket out", bucket=bucket)
            if answer.error_code:
                raise error_of(answer.error_code, answer.error_message)
            found.append(self._read(bucket, answer))
        return found

    def _read(self, bucket: BucketId, answer: KeyFactsBucketResponse) -> BucketKeys:
        names = self._table.schema.names
        return BucketKeys(
            bucket=bucket,
            live_rows=answer.live_rows or 0,
            stored_rows=answer.stored_rows or 0,
            high_watermark=answer.high_watermark or 0,
            epoch=-1 if answer.epoch is None else answer.epoch,
            horizon=answer.horizon or 0,
            series_start=answer.series_start or 0,
            carried=answer.carried or 0,
            snapshot_offset=answer.snapshot_offset or 0,
            base_files=answer.base_files or 0,
            base_bytes=answer.base_bytes or 0,
            index_bytes=answer.index_bytes or 0,
            indexes=tuple(
                IndexStatus(
                    one.name,
                    tuple(names[at] if at < len(names) else "?" for at in one.columns),
                    one.state,
                    one.rows,
                )
                for one in answer.indexes
            ),
        )
