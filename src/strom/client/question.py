"""What a thread that blocks asks by itself, and what an answer says: a scan of a log, or of a table's live rows.

``direct_scan`` sends and receives; a question knows the messages. A bucket is read from ``Part.start`` to ``Part.end``,
answer by answer, and each says where it ends: the next one begins there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from strom.client.cluster import Cluster
from strom.client.fetching import Chunk, ChunkStream, RangeFetch, Source
from strom.client.options import ReadOptions
from strom.client.planning import BucketRange
from strom.client.retry import PASSING
from strom.client.rows import RowReader
from strom.errors import InvalidRequest, LeaderNotAvailable
from strom.model.bucket import BucketId
from strom.protocol.ahead import number_ahead
from strom.protocol.api_keys import FETCH_ROWS, Api
from strom.protocol.error_codes import error_of
from strom.protocol.frame import RESPONSE_HEAD
from strom.protocol.messages.own import FetchRowsBucketRequest, FetchRowsRequest, FetchRowsResponse
from strom.runtime.files import Bytes


class Part(NamedTuple):
    """What is to be read of one range of a plan."""

    number: int
    """Which range."""
    bucket: BucketId
    start: int
    end: int

    def after(self, offset: int) -> Part:
        """The same without what lies before ``offset``."""
        return self._replace(start=offset)


class Question(Protocol):
    """What is asked of servers, part by part."""

    @property
    def cluster(self) -> Cluster:
        """Who leads."""

    @property
    def api(self) -> Api[Any, Any]:
        """The call."""

    @property
    def parts(self) -> Sequence[Part]:
        """What is to be read, in order."""

    @property
    def bytes_max(self) -> int:
        """An answer has about so many bytes at most."""

    @property
    def timeout_s(self) -> float:
        """How long to wait for an answer."""

    def request(self, part: Part, max_bytes: int) -> Any:
        """The message that asks for the beginning of a part."""

    def ahead(self, part: Part, frame: Bytes) -> int | None:
        """Where an answer will end, by what has arrived of it; None when that cannot be told. A hint."""

    def reached(self, part: Part, answer: Any) -> int:
        """Where an answer ends: behind the part's start. Raises what it says, or what is wrong with it."""

    def chunk(self, part: Part, answer: Any) -> Chunk | None:
        """What an answer brought; None when a schema has to be learned first."""

    async def chunk_learned(self, part: Part, answer: Any) -> Chunk:
        """The same with every schema learned."""

    def passes(self, error: Exception, *, begun: bool) -> bool:
        """Whether the loop may get on where this thread got an error; ``begun``: rows were given out."""

    def rest(self, parts: Sequence[Part]) -> ChunkStream:
        """What is left, for the loop."""


def answer_bytes_max(options: ReadOptions, reader: RowReader) -> int:
    """How much to ask for at once: more where some of the columns are wanted, of which a batch holds little."""
    if not reader.projected_ids:
        return options.fetch_bytes_max
    # Who lowers what is fetched at once lowers it for these as well.
    return min(options.projected_bytes_max, 2 * options.fetch_bytes_max)


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
