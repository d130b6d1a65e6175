"""What a scan or a tail reads (table, columns, filter, options), and what it moved so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import ReadOptions
from strom.client.read.damage import note_damage
from strom.client.read.row_reader import Encoded, RowReader
from strom.protocol.message import Payload, whole
from strom.protocol.messages.own import FetchRowsBucketRequest, FetchRowsBucketResponse, FetchRowsRequest
from strom.protocol.messages.predicate import WirePredicate as WirePredicate
from strom.record.batch import split


@dataclass
class ReadStatistics:
    """What a scan or tail transferred, and what the server left out."""

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
    """What is read: a table, the wanted columns, and a filter."""

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
        """A request for these buckets, all led by one server."""
        return FetchRowsRequest(
            table_id=self.table.table_id,
            max_bytes=self.options.fetch_bytes_max if max_bytes is None else max_bytes,
            max_wait_ms=wait_ms,
            min_bytes=1,
            projected_ids=self.reader.projected_ids,
            predicate=self.predicate,
            buckets_req=buckets,
        )

    def batches_of(self, answer: FetchRowsBucketResponse) -> list[Encoded] | None:
        """The batches of one bucket's answer; None when a schema has to be learned first. Counts what came."""
        batches = self.known_batches(answer.records)
        if batches is not None:
            self.statistics.count(answer, batches)
            if any(header.damaged for header, _ in batches):
                note_damage(self.table, answer.bucket_id, batches, self._damage_noted)
        return batches

    def known_batches(self, records: Payload | None) -> list[Encoded] | None:
        """Records as batches; None when a schema has to be learned first."""
        batches = split(whole(records or b""))
        return batches if all(map(self.reader.knows, _schema_ids(batches))) else None

    async def learn(self, records: Payload | None) -> None:
        """Learn every schema that these records need."""
        for schema_id in _schema_ids(split(whole(records or b""))):
            if not self.reader.knows(schema_id):
                self.reader.learn(await self.cluster.schema(self.table, schema_id))


def _schema_ids(batches: Sequence[Encoded]) -> set[int]:
    return {header.schema_id for header, _ in batches}
