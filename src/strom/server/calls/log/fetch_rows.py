"""FetchRows: our own client's fetch. Columns by id, rows by a filter.

Columns are named by id, so a batch of an older schema comes with the ones it has. With a filter, statistics skip whole
batches, and of the others only the matching rows leave. ``next_offset`` says where to go on, which may be past batches
without a match: a filter that matches rarely still makes progress.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import pyarrow as pa

from strom.errors import Corrupt, InvalidPredicate, InvalidRequest, LimitExceeded, StromError
from strom.log.reading.slices import LogSlice
from strom.model.bucket import BucketId
from strom.protocol.api_keys import FETCH_ROWS, Api
from strom.protocol.error_codes import code_of, message_of
from strom.protocol.messages.own import (
    FetchRowsBucketRequest,
    FetchRowsBucketResponse,
    FetchRowsRequest,
    FetchRowsResponse,
)
from strom.record.project import Projection
from strom.remote.slice_plan import ReadWish
from strom.rpc.call import Answer, Call
from strom.server.calls.dispatch import CallHandler
from strom.server.calls.filtering import BatchFilter, FilterLimits, RowFilters
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
from strom.server.calls.log.reader_memory import SeenUpTo, epoch_before
from strom.server.tablets.table_facts import TableFacts, Tables
from strom.tablet.tablet import Tablet


class FetchRowsCalls:
    """Answers FetchRows."""

    def __init__(self, fetches: Fetches, tables: Tables, limits: FilterLimits) -> None:
        self._fetches = fetches
        self._tables = tables
        self._limits = limits

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {FETCH_ROWS: self.fetch_rows}

    def fetch_rows(self, call: Call) -> Answer:
        """Read several buckets of one table."""
        request: FetchRowsRequest = call.request
        read: Read = NeverRead()
        traffic, error = None, None
        try:
            facts = self._tables.of(request.table_id)
            read, traffic = self._reading(facts, request), facts.traffic
        except StromError as problem:
            error = problem
        wanted = [
            FetchedBucket(
                BucketId(request.table_id, one.partition_id, one.bucket_id),
                offset=one.fetch_offset,
                max_bytes=max(one.max_bytes, 1),
                read=read.up_to(one.end_offset) if isinstance(read, RowsRead) else read,
                until=one.end_offset,
                seen=None if one.epoch_before is None else SeenUpTo(one.fetch_offset, one.epoch_before),
                cut=_cut_of(one),
                costly=request.predicate is not None,
                traffic=traffic,
                error=error,
            )
            for one in request.buckets_req
        ]
        return self._fetches.fetch(
            wanted,
            max_bytes=request.max_bytes,
            min_bytes=request.min_bytes,
            max_wait_ms=request.max_wait_ms,
            answer=lambda found: self._answer(request, found),
            share=call.share,
        )

    def _reading(self, facts: TableFacts, request: FetchRowsRequest) -> RowsRead:
        ids = frozenset(request.projected_ids)
        if len(ids) > self._limits.columns_max:
            raise LimitExceeded(
                f"a projection has at most {self._limits.columns_max} columns, not {len(ids)}",
                columns=len(ids),
            )
        batches = None
        if request.predicate is not None:
            _check_filtered(facts)
            batches = BatchFilter.of(request.predicate, facts, facts.table.schema, self._limits)
        return RowsRead(facts, ids, batches, self._limits)

    def _answer(self, request: FetchRowsRequest, found: Sequence[FetchedBucket]) -> FetchRowsResponse:
        pairs = zip(request.buckets_req, found, strict=True)
        return FetchRowsResponse(buckets_resp=[self._bucket_answer(bucket, one) for bucket, one in pairs])

    def _bucket_answer(self, bucket: FetchRowsBucketRequest, one: FetchedBucket) -> FetchRowsBucketResponse:
        if one.error is not None:
            return FetchRowsBucketResponse(
                partition_id=bucket.partition_id,
                bucket_id=bucket.bucket_id,
                error_code=code_of(one.error),
                error_message=message_of(one.error),
            )
        assert one.tablet is not None
        one.count()
        return FetchRowsBucketResponse(
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket_id,
            high_watermark=one.tablet.high_watermark,
            log_start_offset=one.tablet.readable_from,
            records=one.found.buffers or b"",
            next_offset=one.found.next_offset,
            bytes_skipped=one.found.bytes_skipped,
            rows_skipped=one.found.rows_skipped,
            epoch=None if one.seen is None else epoch_before(one.tablet, one.found.next_offset),
        )


class RowsRead(Read):
    """How one request reads: which columns, which rows."""

    def __init__(
        self, facts: TableFacts, ids: frozenset[int], batches: BatchFilter | None, limits: FilterLimits
    ) -> None:
        self._facts = facts
        self._ids = ids
        self._batches = batches
        self._until: int | None = None
        self._rows = (
            None
            if batches is None
            else RowFilters(batches.predicate, self._schema_read, self._positions_wanted, limits)
        )

    def up_to(self, end_offset: int | None) -> RowsRead:
        """The same, ending at an offset."""
        if end_offset is None:
            return self
        found = copy(self)
        found._until = end_offset
        return found

    def wish(self, max_bytes: int, allowed: int) -> ReadWish:
        if self._batches is None or self._rows is None:
            projection = self._projection if self._ids else None
            return ReadWish(max_bytes, allowed, self._until, projection)
        return ReadWish(
            min(max_bytes, STORED_BYTES),
            allowed // STORED_PART,
            self._until,
            self._projection,
            self._batches.skips,
        )

    def made(self, found: LogSlice, max_bytes: int, allowed: int) -> ReadResult:
        if self._rows is None:
            return plain(found)
        return rewritten(found, self._rows, max_bytes=max_bytes, allowed=allowed)

    def unreadable(self, tablet: Tablet, offset: int, error: Corrupt) -> StromError:
        return unreadable_error(self._facts, tablet, offset, error)

    def _columns_read(self, schema_id: int) -> tuple[int, ...]:
        """What to read of a batch: the wanted columns, and those the filter needs."""
        looked_at = frozenset[str]() if self._batches is None else self._batches.columns
        return tuple(
            position
            for position, column in enumerate(self._facts.schema(schema_id).columns)
            if not self._ids or column.id in self._ids or column.name in looked_at
        )

    def _projection(self, schema_id: int) -> Projection | None:
        return self._facts.knowing(schema_id).projection(schema_id, self._columns_read(schema_id))

    def _schema_read(self, schema_id: int) -> pa.Schema:
        """The Arrow schema of what was read of a batch."""
        projection = self._projection(schema_id)
        return self._facts.schema(schema_id).to_arrow() if projection is None else projection.schema

    def _positions_wanted(self, schema_id: int) -> list[int] | None:
        """What leaves, as positions in what was read; None for all of it."""
        if not self._ids:
            return None
        columns = self._facts.schema(schema_id).columns
        read = self._columns_read(schema_id)
        return [index for index, position in enumerate(read) if columns[position].id in self._ids]


def _check_filtered(facts: TableFacts) -> None:
    """Refuse filters on a changelog without rows from before updates: a row that leaves the filter would seem to stay
    forever."""
    table = facts.table
    if table.schema.primary_key and facts.keys.definition.image != "FULL":
        raise InvalidPredicate(
            f"The changelog of {table.path} has no rows from before updates (table.changelog.image = WAL), so it "
            "cannot be filtered here: read all of it, or scan the table",
            table=str(table.path),
        )


def _cut_of(bucket: FetchRowsBucketRequest) -> SeenUpTo | None:
    if bucket.cut_offset is None or bucket.cut_epoch is None:
        return None
    if bucket.end_offset is None or bucket.end_offset > bucket.cut_offset:
        raise InvalidRequest("a read with a cut ends there, or before", end_offset=bucket.end_offset)
    return SeenUpTo(bucket.cut_offset, bucket.cut_epoch)
