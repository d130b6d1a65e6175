"""What a thread that blocks asks for ranges of a log, and what the answers say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from strom.client.cluster.retry import PASSING
from strom.client.plan.log_plan import BucketRange
from strom.client.read.bucket_read import Part, answer_bytes_max
from strom.client.read.fetching import ChunkStream, RangeFetch
from strom.client.read.scan_chunk import Chunk
from strom.client.read.source import Source
from strom.errors import InvalidRequest, LeaderNotAvailable
from strom.protocol.api_keys import FETCH_ROWS
from strom.protocol.early_fields import number_ahead
from strom.protocol.error_codes import error_of
from strom.protocol.frame import RESPONSE_HEAD
from strom.protocol.messages.own import FetchRowsBucketRequest, FetchRowsRequest, FetchRowsResponse
from strom.runtime.files import Bytes


class LogQuestion:
    """Asks for ranges of a log."""

    api = FETCH_ROWS

    def __init__(self, source: Source, ranges: Sequence[BucketRange]) -> None:
        self._source = source
        self._ranges = ranges
        self.cluster = source.cluster
        self.parts = [
            Part(number, one.bucket, one.start, one.end) for number, one in enumerate(ranges) if one.rows > 0
        ]
        options = source.options
        self.timeout_s = (source.cluster.options.request_timeout_ms + options.wait_ms) / 1000
        self.bytes_max = answer_bytes_max(options, source.reader)

    def request(self, part: Part, max_bytes: int) -> FetchRowsRequest:
        source = self._source
        source.statistics.requests += 1
        wanted = FetchRowsBucketRequest(
            partition_id=part.bucket.partition_id,
            bucket_id=part.bucket.bucket,
            fetch_offset=part.start,
            max_bytes=max_bytes,
            end_offset=part.end,
        )
        return source.request([wanted], wait_ms=source.options.wait_ms, max_bytes=max_bytes)

    def ahead(self, part: Part, frame: Bytes) -> int | None:
        return number_ahead(FetchRowsResponse, frame, "next_offset", start=RESPONSE_HEAD.size)

    def reached(self, part: Part, answer: FetchRowsResponse) -> int:
        if len(answer.buckets_resp) != 1:
            raise InvalidRequest("the server's answer leaves this bucket out", bucket=part.bucket)
        found = answer.buckets_resp[0]
        if found.error_code:
            raise error_of(found.error_code, found.error_message)
        if found.next_offset is None or found.next_offset <= part.start:
            raise LeaderNotAvailable(
                f"bucket {part.bucket} cannot be read up to offset {part.end} right now", bucket=part.bucket
            )
        return found.next_offset

    def chunk(self, part: Part, answer: FetchRowsResponse) -> Chunk | None:
        batches = self._source.known_batches_of(answer.buckets_resp[0])
        return None if batches is None else Chunk(part.number, part.start, part.end, batches)

    async def chunk_learned(self, part: Part, answer: FetchRowsResponse) -> Chunk:
        batches = await self._source.batches_of(answer.buckets_resp[0])
        return Chunk(part.number, part.start, part.end, batches)

    def passes(self, error: Exception, *, begun: bool) -> bool:
        return isinstance(error, PASSING)

    def rest(self, parts: Sequence[Part]) -> ChunkStream:
        fetches = [
            RangeFetch(self._source, one.number, replace(self._ranges[one.number], start=one.start))
            for one in parts
        ]
        return ChunkStream(fetches, parallel=self._source.options.parallel_buckets, ordered=True)
