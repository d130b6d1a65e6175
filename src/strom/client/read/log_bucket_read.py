"""Reads a range of one bucket's log."""

from __future__ import annotations

from strom.client.plan.log_plan import BucketRange
from strom.client.read.bucket_read import BucketRead, answer_bytes_max
from strom.client.read.scan_chunk import Chunk
from strom.client.read.source import Source
from strom.errors import InvalidRequest, LeaderNotAvailable
from strom.protocol.api_keys import FETCH_ROWS
from strom.protocol.early_fields import number_ahead
from strom.protocol.error_codes import error_of
from strom.protocol.frame import RESPONSE_HEAD
from strom.protocol.messages.own import FetchRowsBucketRequest, FetchRowsRequest, FetchRowsResponse
from strom.runtime.files import Bytes


class LogBucketRead(BucketRead):
    """Rows of a log, by offset."""

    api = FETCH_ROWS

    def __init__(self, source: Source, number: int, wanted: BucketRange, *, followers: bool = False) -> None:
        followers = followers and wanted.cut is not None
        super().__init__(source, number, wanted.bucket, wanted.start, wanted.end, followers=followers)
        self._cut = wanted.cut

    @property
    def timeout_ms(self) -> int:
        return self.source.cluster.options.request_timeout_ms + self.source.options.wait_ms

    @property
    def thread_bytes_max(self) -> int:
        return answer_bytes_max(self.source.options, self.source.reader)

    def loop_bytes(self, offset: int) -> int:
        return self.source.options.fetch_bytes_max

    def request(self, offset: int, max_bytes: int) -> FetchRowsRequest:
        source = self.source
        source.statistics.requests += 1
        wanted = FetchRowsBucketRequest(
            partition_id=self.bucket.partition_id,
            bucket_id=self.bucket.bucket,
            fetch_offset=offset,
            max_bytes=max_bytes,
            end_offset=self.end,
            cut_offset=None if self._cut is None else self._cut[0],
            cut_epoch=None if self._cut is None else self._cut[1],
        )
        return source.request([wanted], wait_ms=source.options.wait_ms, max_bytes=max_bytes)

    def ahead(self, frame: Bytes) -> int | None:
        return number_ahead(FetchRowsResponse, frame, "next_offset", start=RESPONSE_HEAD.size)

    def reached(self, offset: int, answer: FetchRowsResponse) -> int:
        if len(answer.buckets_resp) != 1:
            raise InvalidRequest("the server's answer leaves this bucket out", bucket=self.bucket)
        found = answer.buckets_resp[0]
        if found.error_code:
            raise error_of(found.error_code, found.error_message)
        if found.next_offset is None or found.next_offset <= offset:
            # The plan's end was readable once. A server that just came back may need a moment to know it again.
            raise LeaderNotAvailable(
                f"bucket {self.bucket} cannot be read up to offset {self.end} right now", bucket=self.bucket
            )
        return found.next_offset

    def chunk(self, offset: int, answer: FetchRowsResponse) -> Chunk | None:
        batches = self.source.batches_of(answer.buckets_resp[0])
        return None if batches is None else Chunk(self.number, offset, self.end, batches)

    async def learn(self, answer: FetchRowsResponse) -> None:
        await self.source.learn(answer.buckets_resp[0].records)
