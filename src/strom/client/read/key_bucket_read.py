"""Reads the live rows of one bucket of a primary-key table at an instant, in the order of their last change."""

from __future__ import annotations

from strom.client.plan.key_plan import Instant
from strom.client.read.bucket_read import BucketRead, answer_bytes_max
from strom.client.read.scan_chunk import Chunk
from strom.client.read.source import Source
from strom.errors import Expired, InvalidRequest
from strom.protocol.api_keys import SCAN_ROWS
from strom.protocol.early_fields import number_ahead
from strom.protocol.error_codes import error_of
from strom.protocol.frame import RESPONSE_HEAD
from strom.protocol.messages.own_keys import ScanRowsRequest, ScanRowsResponse
from strom.runtime.files import Bytes

FIRST_BYTES = 1024 * 1024
SLICE_BYTES_MAX = 2 * 1024 * 1024
"""What the loop asks for first, and then. The server reads a slice while the previous one is received."""
PARTED_BYTES_MAX = 2 * 1024 * 1024
"""For a part of an instant: a server does not know where it ends, and would send much that belongs to another part."""


class KeyBucketRead(BucketRead):
    """Live rows; ``offsets`` asks for the offset of each, ``limit`` for no more rows than that from each bucket."""

    api = SCAN_ROWS
    replanned = (Expired,)

    def __init__(
        self,
        source: Source,
        number: int,
        instant: Instant,
        *,
        offsets: bool,
        limit: int | None,
        followers: bool = False,
    ) -> None:
        followers = followers and instant.epoch is not None
        super().__init__(source, number, instant.bucket, instant.start, instant.until, followers=followers)
        self._instant = instant
        self._offsets = offsets
        self._limit = limit

    @property
    def timeout_ms(self) -> int:
        return self.source.cluster.options.request_timeout_ms

    @property
    def thread_bytes_max(self) -> int:
        most = answer_bytes_max(self.source.options, self.source.reader)
        return most if self._instant.end is None else min(most, PARTED_BYTES_MAX)

    def loop_bytes(self, offset: int) -> int:
        return min(self.source.options.fetch_bytes_max, SLICE_BYTES_MAX if offset else FIRST_BYTES)

    def request(self, offset: int, max_bytes: int) -> ScanRowsRequest:
        source, schema = self.source, self.source.table.schema
        source.statistics.requests += 1
        ids = set(source.reader.projected_ids)
        return ScanRowsRequest(
            table_id=source.table.table_id,
            partition_id=self.bucket.partition_id,
            bucket_id=self.bucket.bucket,
            at=self._instant.at,
            at_epoch=self._instant.epoch,
            start=0,
            cursor=offset or None,
            columns=[at for at, column in enumerate(schema.columns) if column.id in ids],
            predicate=source.predicate,
            limit=self._limit,
            max_bytes=max_bytes,
            dead=False,
            schema_id=schema.schema_id,
            no_offsets=None if self._offsets else True,
        )

    def ahead(self, frame: Bytes) -> int | None:
        return number_ahead(ScanRowsResponse, frame, "next_cursor", start=RESPONSE_HEAD.size, absent=self.end)

    def reached(self, offset: int, answer: ScanRowsResponse) -> int:
        if answer.error_code:
            raise error_of(answer.error_code, answer.error_message)
        if answer.next_cursor is None:
            return self.end
        if answer.next_cursor <= offset:
            raise InvalidRequest("the server's answer leads nowhere", bucket=self.bucket)
        return answer.next_cursor

    def chunk(self, offset: int, answer: ScanRowsResponse) -> Chunk | None:
        batches = self.source.known_batches(answer.records)
        if batches is None:
            return None
        self.source.statistics.bytes_fetched += sum([header.size for header, _ in batches])
        return Chunk(self.number, offset, self.end, batches)

    async def learn(self, answer: ScanRowsResponse) -> None:
        await self.source.learn(answer.records)
