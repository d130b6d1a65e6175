"""What a thread that blocks asks for the live rows of a primary-key table, and what the answers say.

Only the smooth course. The scan itself (``key_scan.py``) knows what the messages hold, plans anew what expired before
its first row, and reads the rest when anything else goes amiss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.options import ReadOptions
from strom.client.cluster.retry import PASSING
from strom.client.plan.key_plan import Instant
from strom.client.read.bucket_read import Part, answer_bytes_max
from strom.client.read.fetching import ChunkStream
from strom.client.read.row_reader import Encoded, RowReader
from strom.client.read.scan_chunk import Chunk
from strom.client.read.source import ReadStatistics
from strom.errors import Expired, InvalidRequest
from strom.model.bucket import BucketId
from strom.protocol.api_keys import SCAN_ROWS
from strom.protocol.early_fields import number_ahead
from strom.protocol.error_codes import error_of
from strom.protocol.frame import RESPONSE_HEAD
from strom.protocol.message import whole
from strom.protocol.messages.own_keys import ScanRowsRequest, ScanRowsResponse
from strom.record.batch import split
from strom.runtime.files import Bytes

PARTED_BYTES_MAX = 2 * 1024 * 1024
"""Of parts of an instant: a server does not know where they end, and would send much that is another part's."""


class Asked(Protocol):
    """The scan: whom it asks, what it counts, what its messages hold."""

    cluster: Cluster
    options: ReadOptions
    statistics: ReadStatistics

    def request(
        self, instant: Instant, cursor: int | None, reader: RowReader, max_bytes: int
    ) -> ScanRowsRequest:
        """The message that asks for one slice of one bucket."""

    async def learn(self, batches: Sequence[Encoded], reader: RowReader) -> None:
        """Make sure that batches can be read."""

    def rest(self, instants: Sequence[Instant], parts: Sequence[Part], reader: RowReader) -> ChunkStream:
        """The answers for what others left of a plan."""


class KeyQuestion:
    """Asks for the live rows of buckets at an instant."""

    api = SCAN_ROWS

    def __init__(self, scan: Asked, instants: Sequence[Instant], reader: RowReader) -> None:
        self._scan = scan
        self._instants = instants
        self._reader = reader
        self.cluster = scan.cluster
        self.parts = [
            Part(number, one.bucket, one.start, one.until)
            for number, one in enumerate(instants)
            if one.start < one.until
        ]
        self.timeout_s = scan.cluster.options.request_timeout_ms / 1000
        self.bytes_max = answer_bytes_max(scan.options, reader)
        if any(one.end is not None for one in instants):
            self.bytes_max = min(self.bytes_max, PARTED_BYTES_MAX)

    def request(self, part: Part, max_bytes: int) -> ScanRowsRequest:
        return self._scan.request(self._instants[part.number], part.start or None, self._reader, max_bytes)

    def ahead(self, part: Part, frame: Bytes) -> int | None:
        return number_ahead(ScanRowsResponse, frame, "next_cursor", start=RESPONSE_HEAD.size, absent=part.end)

    def reached(self, part: Part, answer: ScanRowsResponse) -> int:
        if answer.error_code:
            raise error_of(answer.error_code, answer.error_message)
        if answer.next_cursor is None:
            return part.end
        if answer.next_cursor <= part.start:
            raise leads_nowhere(part.bucket)
        return answer.next_cursor

    def chunk(self, part: Part, answer: ScanRowsResponse) -> Chunk | None:
        batches = split(whole(answer.records or b""))
        if not all(self._reader.knows(header.schema_id) for header, _ in batches):
            return None
        self._scan.statistics.bytes_fetched += sum([header.size for header, _ in batches])
        return Chunk(part.number, part.start, part.end, batches)

    async def chunk_learned(self, part: Part, answer: ScanRowsResponse) -> Chunk:
        await self._scan.learn(split(whole(answer.records or b"")), self._reader)
        chunk = self.chunk(part, answer)
        assert chunk is not None
        return chunk

    def passes(self, error: Exception, *, begun: bool) -> bool:
        return isinstance(error, PASSING) or (isinstance(error, Expired) and not begun)

    def rest(self, parts: Sequence[Part]) -> ChunkStream:
        return self._scan.rest(self._instants, parts, self._reader)


def leads_nowhere(bucket: BucketId) -> InvalidRequest:
    """A server that would have this asked for ever."""
    return InvalidRequest("the server's answer leads nowhere", bucket=bucket)
