"""Where a bucket begins and ends, where it was at some time, and its last rows: ListOffsets and LimitScan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from strom.errors import InvalidRequest, LimitExceeded, StromError
from strom.log.log_reader import TAIL_BYTES_MAX
from strom.model.bucket import BucketId
from strom.protocol.api_keys import LIMIT_SCAN, LIST_OFFSETS, Api
from strom.protocol.error_codes import code_of, message_of
from strom.protocol.message import Message
from strom.protocol.messages.log import (
    LimitScanRequest,
    LimitScanResponse,
    ListOffsetsBucketResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from strom.rpc.call import Call
from strom.runtime.clock import Clock
from strom.runtime.tasks import Offload
from strom.server.calls.dispatch import CallHandler
from strom.server.calls.keys.scan_rows import ScanRowsCalls
from strom.server.remote.remote_logs import RemoteLogs
from strom.server.tablets.table_facts import Tables
from strom.server.tablets.tablets import Tablets, wait_for
from strom.tablet.tablet import Tablet

EARLIEST, LATEST, TIMESTAMP = 0, 1, 2
BUCKETS_MAX = 10_000
LIMIT_ROWS_MAX = 10_000_000


class OffsetCalls:
    """Answers ListOffsets and LimitScan."""

    def __init__(
        self,
        tablets: Tablets,
        tables: Tables,
        readers: Offload,
        clock: Clock,
        keys: ScanRowsCalls,
        remote: RemoteLogs | None = None,
    ) -> None:
        self._remote = remote
        self._tablets = tablets
        self._tables = tables
        self._readers = readers
        self._clock = clock
        self._keys = keys

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {LIST_OFFSETS: self.list_offsets, LIMIT_SCAN: self.limit_scan}

    async def list_offsets(self, call: Call) -> Message:
        """The earliest offset, the latest, or the first at a time, of several buckets."""
        request: ListOffsetsRequest = call.request
        if len(request.bucket_id) > BUCKETS_MAX:
            raise LimitExceeded(
                f"ask for at most {BUCKETS_MAX} buckets at once", buckets=len(request.bucket_id)
            )
        return ListOffsetsResponse(
            buckets_resp=[await self._offset(request, one) for one in request.bucket_id]
        )

    async def _offset(self, request: ListOffsetsRequest, bucket: int) -> ListOffsetsBucketResponse:
        try:
            slot = self._tablets.slot(BucketId(request.table_id, request.partition_id, bucket))
            tablet = await wait_for(slot.opened())
            return ListOffsetsBucketResponse(bucket_id=bucket, offset=await self._ask(tablet, request))
        except StromError as error:
            return ListOffsetsBucketResponse(
                bucket_id=bucket, error_code=code_of(error), error_message=message_of(error)
            )

    async def _ask(self, tablet: Tablet, request: ListOffsetsRequest) -> int:
        tablet.check_online()
        if request.offset_type == EARLIEST:
            if self._remote is not None:
                await self._remote.known(tablet)
            return tablet.readable_from
        if request.offset_type == LATEST:
            return tablet.high_watermark
        if request.offset_type != TIMESTAMP or request.start_timestamp is None:
            raise InvalidRequest(
                "offset_type is 0 (earliest), 1 (latest) or 2 (timestamp, with one)",
                offset_type=request.offset_type,
            )
        now_ms, timestamp_ms = self._clock.now_ms(), request.start_timestamp
        here = await self._readers.run(lambda: tablet.offset_at(timestamp_ms, now_ms=now_ms))
        return here if self._remote is None else await self._remote.offset_at(tablet, timestamp_ms, here)

    async def limit_scan(self, call: Call) -> Message:
        """The last rows of one bucket."""
        request: LimitScanRequest = call.request
        share = call.share
        try:
            facts = self._tables.of(request.table_id)
            if not 0 < request.limit <= LIMIT_ROWS_MAX:
                raise LimitExceeded(f"the limit of a scan is 1 to {LIMIT_ROWS_MAX} rows", limit=request.limit)
            if facts.table.schema.primary_key:
                return await self._keys.limit_scan(request, facts, share)
            slot = self._tablets.slot(BucketId(request.table_id, request.partition_id, request.bucket_id))
            tablet = await wait_for(slot.opened())
            await share.need(max(min(TAIL_BYTES_MAX, tablet.bytes_from(tablet.start_offset)), 1))
            slot.readers += 1
            try:
                found = await self._readers.run(tablet.tail_rows, request.limit)
                if self._remote is not None:
                    found = await self._remote.tail_rows(tablet, found, request.limit)
            finally:
                slot.readers -= 1
            share.keep(found.size)
        except StromError as error:
            return LimitScanResponse(error_code=code_of(error), error_message=message_of(error))
        facts.traffic.rows_out.inc(found.rows)
        facts.traffic.bytes_out.inc(found.size)
        return LimitScanResponse(is_log_table=True, records=list(found.buffers) or b"")
