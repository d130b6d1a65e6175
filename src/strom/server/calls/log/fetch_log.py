"""FetchLog: the peer's fetch. Batches leave as they are in the log, or with some of their columns.

A filter here only skips batches whose statistics say that no row can match; the answer is a superset, as the peer's
clients expect. ``records`` is always set, because without it the peer's client never wakes.

A fetch in the name of a follower is refused: the peer's followers read above the high watermark and past all
permissions this way, and so could anybody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from strom.errors import Corrupt, InvalidRequest, StromError
from strom.log.reading.slices import LogSlice, Skip
from strom.model.bucket import BucketId
from strom.protocol.api_keys import FETCH_LOG, Api
from strom.protocol.error_codes import code_of, message_of
from strom.protocol.messages.log import (
    FetchLogBucketRequest,
    FetchLogBucketResponse,
    FetchLogRequest,
    FetchLogResponse,
    FetchLogTableRequest,
    FetchLogTableResponse,
)
from strom.record.project import Projection
from strom.remote.slice_plan import ReadWish
from strom.rpc.call import Answer, Call
from strom.server.calls.dispatch import CallHandler
from strom.server.calls.filtering import BatchFilter, FilterLimits
from strom.server.calls.log.added_columns import Evolved
from strom.server.calls.log.damage import unreadable_error
from strom.server.calls.log.fetch import Fetches
from strom.server.calls.log.fetched_bucket import FetchedBucket
from strom.server.calls.log.log_read import (
    STORED_BYTES,
    STORED_PART,
    NeverRead,
    Read,
    ReadResult,
    plain,
    rewritten,
)
from strom.server.tablets.table_facts import TableFacts, Tables, check_positions
from strom.tablet.tablet import Tablet

DEFAULT_WAIT_MS = 0
DEFAULT_MIN_BYTES = 1


class FetchLogCalls:
    """Answers FetchLog."""

    def __init__(self, fetches: Fetches, tables: Tables, limits: FilterLimits) -> None:
        self._fetches = fetches
        self._tables = tables
        self._limits = limits

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {FETCH_LOG: self.fetch_log}

    def fetch_log(self, call: Call) -> Answer:
        """Read several buckets of several tables."""
        request: FetchLogRequest = call.request
        if request.follower_server_id >= 0:
            raise InvalidRequest(
                "a copy of a bucket does not fetch like a client: servers pull from each other on inner listeners",
                follower=request.follower_server_id,
            )
        wanted = [one for table in request.tables_req for one in self._wanted(table)]
        return self._fetches.fetch(
            wanted,
            max_bytes=request.max_bytes,
            min_bytes=DEFAULT_MIN_BYTES if request.min_bytes is None else request.min_bytes,
            max_wait_ms=DEFAULT_WAIT_MS if request.max_wait_ms is None else request.max_wait_ms,
            answer=lambda found: self._answer(request, found),
            share=call.share,
        )

    # --- what is wanted --------------------------------------------------------------------------------

    def _wanted(self, table: FetchLogTableRequest) -> list[FetchedBucket]:
        read: Read = NeverRead()
        costly = False
        traffic, error = None, None
        try:
            facts = self._tables.of(table.table_id)
            (read, costly), traffic = self._reading(facts, table), facts.traffic
        except StromError as problem:
            error = problem
        return [
            FetchedBucket(
                BucketId(table.table_id, bucket.partition_id, bucket.bucket_id),
                offset=bucket.fetch_offset,
                max_bytes=max(bucket.max_fetch_bytes, 1),
                read=read,
                costly=costly,
                traffic=traffic,
                error=error,
            )
            for bucket in table.buckets_req
        ]

    def _reading(self, facts: TableFacts, table: FetchLogTableRequest) -> tuple[Read, bool]:
        """How to read, and whether batches are rewritten on the way."""
        columns = _Columns(facts, table, self._limits) if table.projection_pushdown_enabled else None
        read = _LogRead(facts, columns, self._skip(facts, table))
        return read, read.rewrites

    def _skip(self, facts: TableFacts, table: FetchLogTableRequest) -> Skip | None:
        if table.filter_predicate is None:
            return None
        schema_id = table.filter_schema_id
        schema = facts.table.schema if schema_id is None else facts.schema(schema_id)
        return BatchFilter.of(table.filter_predicate, facts, schema, self._limits).skips

    # --- the answer ------------------------------------------------------------------------------------

    def _answer(self, request: FetchLogRequest, found: Sequence[FetchedBucket]) -> FetchLogResponse:
        answers = iter(found)
        tables = [
            FetchLogTableResponse(
                table_id=table.table_id,
                buckets_resp=[
                    self._bucket_answer(table, bucket, next(answers)) for bucket in table.buckets_req
                ],
            )
            for table in request.tables_req
        ]
        return FetchLogResponse(tables_resp=tables)

    def _bucket_answer(
        self, table: FetchLogTableRequest, bucket: FetchLogBucketRequest, one: FetchedBucket
    ) -> FetchLogBucketResponse:
        if one.error is not None:
            return FetchLogBucketResponse(
                partition_id=bucket.partition_id,
                bucket_id=bucket.bucket_id,
                error_code=code_of(one.error),
                error_message=message_of(one.error),
                records=b"",
            )
        assert one.tablet is not None
        one.count()
        pruned = table.filter_predicate is not None and one.found.bytes_skipped
        return FetchLogBucketResponse(
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket_id,
            high_watermark=one.tablet.high_watermark,
            log_start_offset=one.tablet.readable_from,
            records=one.found.buffers or b"",
            filtered_end_offset=one.found.next_offset if pruned else None,
        )


class _LogRead(Read):
    """How a request of the peer reads."""

    def __init__(self, facts: TableFacts, columns: _Columns | None, skip: Skip | None) -> None:
        self._facts = facts
        self._projection = None if columns is None or columns.all else columns.projection
        self._evolved = None if columns is None else columns.evolved
        self._skip = skip

    @property
    def rewrites(self) -> bool:
        """Whether batches are rewritten on the way."""
        return self._evolved is not None

    def wish(self, max_bytes: int, allowed: int) -> ReadWish:
        if self.rewrites:
            max_bytes, allowed = min(max_bytes, STORED_BYTES), allowed // STORED_PART
        # The peer's clients pass what was given up only if the next existing batch comes at once.
        return ReadWish(max_bytes, allowed, projection=self._projection, skip=self._skip, gaps=False)

    def made(self, found: LogSlice, max_bytes: int, allowed: int) -> ReadResult:
        if self._evolved is None:
            return plain(found)
        return rewritten(found, self._evolved, max_bytes=max_bytes, allowed=allowed)

    def unreadable(self, tablet: Tablet, offset: int, error: Corrupt) -> StromError:
        return unreadable_error(self._facts, tablet, offset, error)


class _Columns:
    """The columns of a request, by position in the newest schema."""

    def __init__(self, facts: TableFacts, table: FetchLogTableRequest, limits: FilterLimits) -> None:
        newest = facts.table.schema
        self._facts = facts
        self._positions = tuple(table.projected_fields)
        check_positions(self._positions, len(newest.columns), columns_max=limits.columns_max)
        self.all = self._positions == tuple(range(len(newest.columns))) and len(facts.table.schemas) == 1
        self.evolved: Evolved | None = None
        if self._positions[-1] >= len(facts.table.schemas[0].columns):
            arrow = newest.to_arrow()
            self.evolved = Evolved(
                pa.schema([arrow.field(one) for one in self._positions]),
                self._schema_read,
                decompressed_bytes_max=limits.decompressed_bytes_max,
            )

    def projection(self, schema_id: int) -> Projection | None:
        """The columns that a batch of this schema has; at least one, to have something to read."""
        facts = self._facts.knowing(schema_id)
        count = len(facts.schema(schema_id).columns)
        return facts.projection(schema_id, tuple(one for one in self._positions if one < count) or (0,))

    def _schema_read(self, schema_id: int) -> pa.Schema:
        projection = self.projection(schema_id)
        return self._facts.schema(schema_id).to_arrow() if projection is None else projection.schema
