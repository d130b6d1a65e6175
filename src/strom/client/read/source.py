"""What a scan or a tail of a log reads (table, columns, filter, options), and what it moved so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import ReadOptions
from strom.client.read.damage import note_damage
from strom.client.read.row_reader import Encoded, RowReader
from strom.protocol.message import whole
from strom.protocol.messages.own import FetchRowsBucketRequest, FetchRowsBucketResponse, FetchRowsRequest
from strom.protocol.messages.predicate import WirePredicate as WirePredicate
from strom.record.batch import split


@dataclass
class ReadStatistics:
    """What a scan or tail moved, and what the server spared it."""

    bytes_fetched: int = 0
    bytes_skipped: int = 0
    rows_skipped: int = 0
    requests: int = 0

    def count(self, answer: FetchRowsBucketResponse, batches: Sequence[Encoded]) -> None:
        """Add one bucket's answer."""
        self.bytes_fetched += sum([header.size for header, _ in batches])
        self.bytes_skipped += answer.bytes_skipped or 0
        self.rows_skipped += answer.rows_skipped or 0


@dataclass
class Source:
    """What is read: a table, the columns and rows of it that are wanted."""

    cluster: Cluster
    table: TableInfo
    reader: RowReader
    predicate: WirePredicate | None = None
    options: ReadOptions = field(default_factory=ReadOptions)
    statistics: ReadStatistics = field(default_factory=ReadStatistics)
    _damage_noted: set[tuple[int, int]] = field(default_factory=set)

    def request(
        self, buckets: Sequence[FetchRowsBucketRequest], *, wait_ms: int, max_bytes: int | None = None
    ) -> FetchRowsRequest:
        """A fetch of these buckets, which one server leads."""
        return FetchRowsRequest(
            table_id=self.table.table_id,
            max_bytes=self.options.fetch_bytes_max if max_bytes is None else max_bytes,
            max_wait_ms=wait_ms,
            min_bytes=1,
            projected_ids=self.reader.projected_ids,
            predicate=self.predicate,
            buckets_req=buckets,
        )

    async def batches_of(self, answer: FetchRowsBucketResponse) -> list[Encoded]:
        """The batches of one bucket's answer, with every schema they need learned."""
        batches = split(whole(answer.records or b""))
        for schema_id in {header.schema_id for header, _ in batches}:
            if not self.reader.knows(schema_id):
                self.reader.learn(await self.cluster.schema(self.table, schema_id))
        self._look_at(answer, batches)
        return batches

    def known_batches_of(self, answer: FetchRowsBucketResponse) -> list[Encoded] | None:
        """The same without waiting; None when a schema has to be learned first."""
        batches = split(whole(answer.records or b""))
        knows = self.reader.knows
        for header, _ in batches:
            if not knows(header.schema_id):
                return None
        self._look_at(answer, batches)
        return batches

    def _look_at(self, answer: FetchRowsBucketResponse, batches: Sequence[Encoded]) -> None:
        self.statistics.count(answer, batches)
        if any(header.damaged for header, _ in batches):
            note_damage(self.table, answer.bucket_id, batches, self._damage_noted)
